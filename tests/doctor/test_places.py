"""Whose code it is."""

import os
import subprocess
import sys
from pathlib import Path

_ASK = """
import sys
from slipstream.doctor.record.places import is_foreign
print(*(is_foreign(file) for file in sys.argv[1:]))
"""


def test_what_pip_has_put_into_a_folder_of_pythonpath_is_not_the_users(tmp_path: Path) -> None:
    """What else is there is."""
    record = tmp_path / "site" / "thing-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("thing/__init__.py,sha256=x,1\nthing-1.0.dist-info/RECORD,,\n../bin/a,,\n")
    asked = ["site/thing/core.py", "site/things/core.py", "site/train.py", "thing/core.py"]
    done = subprocess.run(
        [sys.executable, "-c", _ASK, *(str(tmp_path / name) for name in asked)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}"}, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "False", "False"]
