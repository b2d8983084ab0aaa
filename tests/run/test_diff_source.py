"""Changes of a source: only where they are meant, and never into something that is no Python."""

import ast
import difflib
from pathlib import Path
from textwrap import dedent

import pytest

from slipstream.run.diff.calls import call_named, with_keyword
from slipstream.run.diff.head import TopLine, top_edits
from slipstream.run.diff.source import Edit, NoEdit, Source, edited
from slipstream.run.diff.statements import added_before, wrapped
from slipstream.run.diff.unified import base_of, unified


def source_of(folder: Path, text: str) -> Source:
    path = folder / "train.py"
    path.write_bytes(dedent(text).encode())
    return Source(path)


def with_fused(folder: Path, call: str) -> str:
    source = source_of(folder, f"x = 'é'; {call}")
    found = call_named(source, 1, "SGD")
    edit = with_keyword(source, found, "fused", "True")
    return edited(source, [edit] if edit else []).removeprefix("x = 'é'; ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SGD()", "SGD(fused=True)"),
        ("o.SGD(p)", "o.SGD(p, fused=True)"),
        ("SGD(p, (0.1))", "SGD(p, (0.1), fused=True)"),
        ("SGD(p, lr=0.1,)", "SGD(p, lr=0.1, fused=True)"),
        ("SGD(p, fused=None)", "SGD(p, fused=True)"),
        ("SGD(p, fused=True)", "SGD(p, fused=True)"),
        ("SGD(\n    p,  # all ) of them\n    lr=f(1),  # a comment\n)",
         "SGD(\n    p,  # all ) of them\n    lr=f(1),  # a comment\n    fused=True,\n)"),
        ("SGD(\n    p, lr=')'  # a comment\n)", "SGD(\n    p, lr=')', fused=True  # a comment\n)"),
        ("SGD([\n  p\n])", "SGD([\n  p\n], fused=True)"),
    ],
)  # fmt: skip
def test_a_call_gets_a_keyword(tmp_path: Path, before: str, after: str) -> None:
    assert with_fused(tmp_path, before) == after


@pytest.mark.parametrize(
    "call", ["SGD(p, **options)", "SGD(*a)", "SGD(p, fused=x)", "SGD(p for p in q)", "make(p)"]
)
def test_a_call_that_is_built_elsewhere_is_left_alone(tmp_path: Path, call: str) -> None:
    with pytest.raises(NoEdit):
        with_fused(tmp_path, call)


def test_lines_go_behind_the_imports_and_before_what_is_loaded(tmp_path: Path) -> None:
    source = source_of(
        tmp_path,
        '''\
        #!/usr/bin/env python
        """Trains."""
        from __future__ import annotations

        import os
        os.environ["X"] = "1"
        from torch.nn import (
            Linear,
        )

        def main(): ...
        import late
        ''',
    )
    lines = [
        TopLine("os", "os.environ.setdefault()", is_first=True),
        TopLine("slipstream", "slipstream.speed_up()"),
        TopLine("torch", "torch.x()"),
    ]
    new = edited(source, top_edits(source, lines))
    diff = list(difflib.ndiff(source.text.splitlines(), new.splitlines()))
    assert [line[2:] for line in diff if line.startswith("+ ") and line[2:]] == [
        "os.environ.setdefault()", "import slipstream", "import torch",
        "slipstream.speed_up()", "torch.x()",
    ]  # fmt: skip
    assert not [line for line in diff if line.startswith("- ")]
    body = [ast.unparse(node) for node in ast.parse(new).body]
    assert body.index("os.environ.setdefault()") == 3
    assert body.index("slipstream.speed_up()") == body.index("import torch") + 1
    assert body.index("import torch") < body.index("torch.x()") < body.index("import late")


def test_lines_go_behind_variables_that_torch_is_loaded_with(tmp_path: Path) -> None:
    """Slipstream loads it, too."""
    text = (
        "import os\n\nthreads = 1\nos.environ['X'] = str(threads)\nimport torch\nx = 1\nimport y\n"
    )
    source = source_of(tmp_path, text)
    new = edited(source, top_edits(source, [TopLine("slipstream", "slipstream.speed_up()")]))
    lines = [line for line in new.splitlines() if line]
    assert lines.index("import torch") + 1 == lines.index("import slipstream")
    assert lines.index("slipstream.speed_up()") < lines.index("x = 1")


def test_a_first_line_goes_before_packages_and_imports_what_it_needs(tmp_path: Path) -> None:
    for text, expected in (
        ("import os\nimport sys\nimport torch\n",
         "import os\nimport sys\n\nos.nice(0)\n\nimport torch\n"),
        ("import sys\nimport torch\nimport os\n",
         "import os\n\nos.nice(0)\n\nimport sys\nimport torch\nimport os\n"),
        ("from . import os\nimport os\n",
         "import os\n\nos.nice(0)\n\nfrom . import os\nimport os\n"),
        ('"""Doc."""\nimport torch\n', '"""Doc."""\n\nimport os\n\nos.nice(0)\n\nimport torch\n'),
    ):  # fmt: skip
        source = source_of(tmp_path, text)
        line = TopLine("os", "os.nice(0)", is_first=True)
        assert edited(source, top_edits(source, [line])) == expected


def test_a_line_can_go_into_a_script_without_imports(tmp_path: Path) -> None:
    for text in ("", "x = 1", "# about\nx = 1\n", '"""Doc."""', '"""Doc."""\nx = 1\n'):
        source = source_of(tmp_path, text)
        new = edited(source, top_edits(source, [TopLine("os", "os.nice(0)")]))
        own = [ast.unparse(node) for node in source.tree.body]
        body = [ast.unparse(node) for node in ast.parse(new).body]
        assert [line for line in body if line in own] == own
        assert [line for line in body if line not in own] == ["import os", "os.nice(0)"]


def test_statements_are_put_deeper_and_behind_others(tmp_path: Path) -> None:
    source = source_of(
        tmp_path,
        """\
        def f(x):
            for a in x:
                y = g(
                    a,

                    1)  # kept
            if x: pass
        """,
    )
    function = source.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    loop, condition = function.body
    assert isinstance(loop, ast.For) and isinstance(condition, ast.If)
    new = edited(source, [
        wrapped(source, loop.body[0], "with h():"),
        added_before(source, condition, "k()"),
    ])  # fmt: skip
    assert new == dedent("""\
        def f(x):
            for a in x:
                with h():
                    y = g(
                        a,

                        1)  # kept
            k()
            if x: pass
        """)
    with pytest.raises(NoEdit, match="cannot be put under another line"):
        wrapped(source, loop, "with h():")


def test_what_cannot_be_put_deeper_is_refused(tmp_path: Path) -> None:
    for text in ('x = """a\nb"""\n', "x = 1; y = 2\n", "x = f'''a\nb'''\n"):
        source = source_of(tmp_path, text)
        with pytest.raises(NoEdit):
            wrapped(source, source.tree.body[0], "with h():")


def test_two_changes_of_the_same_place_and_broken_results_are_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path, "x = 1\n")
    with pytest.raises(NoEdit, match="same place"):
        edited(source, [Edit(source.path, 0, 3, "y"), Edit(source.path, 2, 4, "z")])
    with pytest.raises(NoEdit, match="no Python"):
        edited(source, [Edit(source.path, 0, 0, "(")])
    (tmp_path / "bad.py").write_bytes(b"\xff")
    with pytest.raises(NoEdit):
        Source(tmp_path / "bad.py")


def test_ends_of_lines_stay(tmp_path: Path) -> None:
    source = source_of(tmp_path, "import os\r\nx = 1\r\n")
    new = edited(source, top_edits(source, [TopLine("os", "os.nice(0)")]))
    assert new == "import os\r\n\r\nos.nice(0)\r\n\r\nx = 1\r\n"


def test_a_diff_says_where_a_file_has_no_last_newline() -> None:
    path = Path("/a/my train.py")
    text = unified({path: "a\nb"}, {path: "a\nc"}, Path("/a"))
    assert text == (
        "--- a/my train.py\t\n+++ b/my train.py\t\n@@ -1,2 +1,2 @@\n a\n-b\n"
        "\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )


def test_paths_are_relative_to_where_the_script_was_run() -> None:
    assert base_of([Path("/a/b/c.py")], Path("/a/b")) == Path("/a/b")
    assert base_of([Path("/a/c.py")], Path("/a/b")) == Path("/a")
