"""What the statements at some lines do, in names from a fixed list: no source is kept.

A sampling thread knows the line that runs, and not the function in C below it. The line says it.
"""

import ast
import builtins
import linecache
import sys
from collections.abc import Iterable
from typing import Any

from slipstream.doctor.record.places import full_path

WRITES, PYTHON, ARRAYS, SLEEPS, STATE, MOVES, TORCH, OTHER = (
    "writes", "python", "arrays", "sleeps", "state", "moves", "torch", "other",
)  # fmt: skip
_WRITERS = frozenset((
    "print", "write", "writelines", "writerow", "writerows", "flush", "fsync", "savefig", "to_csv",
    "to_json", "to_parquet", "add_scalar", "add_scalars", "add_histogram", "add_image",
    "add_images", "add_figure", "add_text", "log_metric", "log_metrics", "info", "debug",
    "warning", "dump", "savetxt", "savez", "savez_compressed", "imsave", "imwrite",
))  # fmt: skip
_MOVERS = frozenset((
    "replace", "rename", "renames", "move", "copy", "copy2", "copyfile", "link", "symlink",
    "remove", "unlink",
))  # fmt: skip
_BY_PACKAGE = (
    (("time",), frozenset({"sleep"}), SLEEPS),
    (("os", "posix", "shutil"), _MOVERS, MOVES),
)
_ARITHMETIC = frozenset(("sum", "abs", "max", "min", "pow", "round", "divmod", "float", "map"))
_PARAMETERS = frozenset(("parameters", "named_parameters", "state_dict", "buffers"))
_FACTORIES = frozenset((
    "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "linspace",
    "eye", "tensor", "zeros_like", "ones_like", "rand_like", "randn_like",
))  # fmt: skip
_ARRAY_PACKAGES = frozenset(
    ("numpy", "scipy", "sklearn", "pandas", "PIL", "cv2", "skimage", "matplotlib", "numba")
)


def describe_statements(places: Iterable[str]) -> dict[str, dict[str, Any]]:
    """{place: {"does": [names], "builds": whether it makes a tensor of nothing,
    "over_parameters": place of the loop or None}}.
    """
    found: dict[str, dict[str, Any]] = {}
    trees: dict[str, ast.Module | None] = {}
    known: dict[str, dict[str, Any]] = {}
    for place in places:
        file, _, number = place.rpartition(":")
        if file not in trees:
            tree = trees[file] = _tree_of(file)
            known[file] = {} if tree is None else _names_of(file) or _imported(tree)
        tree, names = trees[file], known[file]
        if tree is None or not number.isdigit():
            continue
        chain = _chain_at(tree, int(number))
        if chain:
            loop = _parameter_loop(chain)
            found[place] = {
                "does": sorted(_does(_at_the_end(chain), names)),
                "builds": _builds(chain[-1], names),
                "over_parameters": None if loop is None else f"{file}:{loop}",
            }
    return found


def accumulation_of(place: str) -> str | None:
    """Where a loss whose `backward` is called at this place is added up, or put in a list, with
    its graph; None where no such statement is seen.
    """
    file, _, number = place.rpartition(":")
    tree = _tree_of(file)
    if tree is None:
        return None
    roots = {
        _root(node.func.value)
        for statement in _chain_at(tree, int(number))[-1:]
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    }
    for node in _statements_and_calls(tree):
        kept: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            kept = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and node.args
        ):
            kept = node.args[0]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target = ast.unparse(node.targets[0])
            if target in {ast.unparse(node.value.left), ast.unparse(node.value.right)}:
                kept = node.value
        if kept is not None and _holds_graph(kept, roots):
            return f"{file}:{node.lineno}"
    return None


def _statements_and_calls(tree: ast.Module) -> Iterable[ast.stmt | ast.expr]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr)))


def _holds_graph(kept: ast.expr, roots: set[str | None]) -> bool:
    names = {node.id for node in ast.walk(kept) if isinstance(node, ast.Name)}
    cut = any(
        isinstance(node, ast.Attribute) and node.attr in ("item", "detach", "data", "tolist")
        for node in ast.walk(kept)
    )
    as_number = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float"
        for node in ast.walk(kept)
    )
    return bool(names & roots) and not cut and not as_number


def _tree_of(file: str) -> ast.Module | None:
    # Cells of notebooks are no files, but known there.
    lines = linecache.getlines(full_path(file))
    try:
        return ast.parse("".join(lines)) if lines else None
    except (SyntaxError, ValueError):
        return None


def _names_of(file: str) -> dict[str, Any]:
    """The globals of the module that the file is."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and (path == file or path.endswith("/" + file)):
            return vars(module)
    main = sys.modules.get("__main__")
    return {} if main is None or getattr(main, "__file__", None) else vars(main)


def _imported(tree: ast.Module) -> dict[str, Any]:
    """What a file imports, by its names: what was run by `-m` is no module any more."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = sys.modules.get(whole)
        elif isinstance(node, ast.ImportFrom):
            module = sys.modules.get(node.module or "")
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(module, alias.name, None)
    return names


def _chain_at(tree: ast.AST, line: int) -> list[ast.stmt]:
    """The statements around a line, the innermost last."""
    chain: list[ast.stmt] = []
    body: list[ast.AST] = [tree]
    while body:
        inner = [
            child
            for node in body
            for child in ast.iter_child_nodes(node)
            if getattr(child, "lineno", line) <= line <= getattr(child, "end_lineno", line)
        ]
        chain += [node for node in inner if isinstance(node, ast.stmt)]
        body = inner
    return chain


def _own_expressions(statement: ast.stmt) -> list[ast.AST]:
    """Of a compound statement: its head only."""
    if not hasattr(statement, "body"):
        return [statement]
    return [
        child
        for child in ast.iter_child_nodes(statement)
        if not isinstance(child, (ast.stmt, ast.ExceptHandler))
    ]


def _parameter_loop(chain: list[ast.stmt]) -> int | None:
    """The line of a loop over a model's parameters that the innermost statement is part of."""
    for statement in reversed(chain):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        if isinstance(statement, ast.For) and _calls_any(statement.iter, _PARAMETERS):
            return statement.lineno
    for expression in _own_expressions(chain[-1]):
        for node in ast.walk(expression):
            if isinstance(node, ast.comprehension) and _calls_any(node.iter, _PARAMETERS):
                return chain[-1].lineno
    return None


def _calls_any(expression: ast.AST, names: frozenset[str]) -> bool:
    found = {node.attr for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
    return bool(found & (names | {"param_groups"}))


def _at_the_end(chain: list[ast.stmt]) -> list[ast.stmt]:
    """The innermost statements: more than one where a line has several."""
    plain = [statement for statement in chain if not hasattr(statement, "body")]
    return plain or chain[-1:]


def _does(statements: list[ast.stmt], names: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for statement in statements:
        for expression in _own_expressions(statement):
            for node in ast.walk(expression):
                if isinstance(node, ast.Call):
                    found.add(_kind_of(node, names))
                elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign)):
                    found.add(OTHER)  # of numbers or of tensors
    return found or {PYTHON}


def _builds(statement: ast.stmt, names: dict[str, Any]) -> bool:
    calls = [
        node.func
        for expression in _own_expressions(statement)
        for node in ast.walk(expression)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    return any(
        function.attr in _FACTORIES and _package_of(names.get(_root(function) or "")) == "torch"
        for function in calls
    )


def _kind_of(call: ast.Call, names: dict[str, Any]) -> str:
    last = call.func.attr if isinstance(call.func, ast.Attribute) else None
    root = _root(call.func)
    known = names.get(root, getattr(builtins, root, None)) if root else None
    package = _package_of(known)
    name = last or getattr(known, "__name__", None) or root or ""
    if name in _WRITERS or (name == "open" and _opens_to_write(call)):
        return WRITES
    if name in ("deepcopy", "state_dict", "load_state_dict"):
        return STATE
    for packages, wanted, kind in _BY_PACKAGE:
        if package in packages and name in wanted:
            return kind
    if package in _ARRAY_PACKAGES:
        return ARRAYS
    if package == "torch":
        return TORCH
    if name in _ARITHMETIC:
        return OTHER
    if package in ("builtins", "math", "random", "itertools", "re", "collections", "json"):
        return PYTHON
    return OTHER


def _package_of(known: Any) -> str:
    if known is None:
        return ""
    name = getattr(known, "__name__", "") if isinstance(known, type(ast)) else ""
    return (name or getattr(known, "__module__", None) or "").partition(".")[0]


def _root(expression: ast.AST) -> str | None:
    while isinstance(expression, (ast.Attribute, ast.Call, ast.Subscript)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def _opens_to_write(call: ast.Call) -> bool:
    """`open(path, "w")` and `path.open("w")`: a mode is short, and of few letters."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return any(set(mode) <= set("rwxabt+") and set(mode) & set("wax+") for mode in modes)
