"""Finds loops over pairs of tensors that update the first by the second, and nothing else.

    for kept, new in zip(average.parameters(), model.parameters()):
        kept.mul_(decay).add_(new, alpha=1 - decay)
        # or: kept.copy_(decay * kept + (1 - decay) * new), kept.lerp_(new, 1 - decay)

The loop stays as it is; what it goes over is handed to a function, which may do the work and leave
nothing to go over. Factors must be made of names, attributes and numbers, so that it is the same
whether they are looked up once or for each pair.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

HANDED_TO = "__slipstream_pairs__"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
_FACTOR = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Attribute, ast.Constant, ast.operator, ast.unaryop,
           ast.expr_context)  # fmt: skip
_ZIPPED = 2


@dataclass(frozen=True)
class Update:
    """`kind` is scale, lerp or copy; `factors` are the source of its numbers; `by` says how the
    first of a pair is reached: "itself", or by "data" or "detach", which autograd does not watch.
    """

    kind: str
    factors: tuple[ast.expr, ...]
    by: str


def rewritten(source: str | bytes, file: str) -> ast.Module | None:
    """The program with its loops handed over; None where there is none."""
    tree = ast.parse(source, file)
    found = False
    for scope, loop in list(_loops(tree, tree)):
        update = _update(loop)
        if update is None or not _is_own(scope, loop):
            continue
        found = True
        factors = ast.Tuple([*update.factors], ast.Load())
        loop.iter = ast.copy_location(
            ast.Call(
                ast.Name(HANDED_TO, ast.Load()),
                [
                    loop.iter,
                    ast.Constant(update.kind),
                    ast.Constant(update.by),
                    ast.Lambda(ast.arguments([], [], None, [], [], None, []), factors),
                ],
                [],
            ),
            loop.iter,
        )
    return ast.fix_missing_locations(tree) if found else None


def _loops(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, ast.For]]:
    """Not those that stand in the body of a class: a function there does not see its names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.For) and isinstance(scope, _SCOPES):
            yield scope, child
        inner = child if isinstance(child, (*_SCOPES, ast.ClassDef)) else scope
        yield from _loops(child, inner)


def _is_own(scope: ast.AST, loop: ast.For) -> bool:
    """Whether nobody else reads the names of the loop, which are not bound when it is skipped."""
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    inside = set(map(id, ast.walk(loop)))
    return not any(
        isinstance(node, ast.Name) and node.id in names and id(node) not in inside
        and isinstance(node.ctx, ast.Load)
        for node in ast.walk(scope)
    )  # fmt: skip


def _update(loop: ast.For) -> Update | None:
    match loop:
        case ast.For(
            target=ast.Tuple([ast.Name(kept), ast.Name(new)]),
            iter=ast.Call(ast.Name("zip"), [_, _], keywords),
            body=[ast.Expr(ast.Call(ast.Attribute(on, method), arguments, named))],
            orelse=[],
        ) if all(word.arg == "strict" for word in keywords):
            update = _of_call(on, method, arguments, named, kept, new)
        case _:
            return None
    if update is None or not all(_is_factor(f, (kept, new)) for f in update.factors):
        return None
    return update


def _of_call(
    on: ast.expr, method: str, arguments: list[ast.expr], named: list[ast.keyword], kept: str,
    new: str,
) -> Update | None:  # fmt: skip
    match on, method, arguments, named:
        case _, "copy_", [value], [] if _is(on, kept) and _is(value, new):
            return Update("copy", (), _way_to(on))
        case _, "copy_", [ast.BinOp(one, ast.Add(), other)], [] if _is(on, kept):
            for first, second in ((one, other), (other, one)):
                decay, alpha = _times(first, kept), _times(second, new)
                if decay is not None and alpha is not None:
                    return Update("scale", (decay, alpha), _way_to(on))
        case _, "lerp_", [value, weight], [] if _is(on, kept) and _is(value, new):
            return Update("lerp", (weight,), _way_to(on))
        case ast.Call(ast.Attribute(first, "mul_"), [decay], []), "add_", [value], _ if _is(
            first, kept
        ):
            match named:
                case [ast.keyword("alpha", alpha)] if _is(value, new):
                    return Update("scale", (decay, alpha), _way_to(first))
                case [] if (factor := _times(value, new)) is not None:
                    return Update("scale", (decay, factor), _way_to(first))
    return None


def _times(node: ast.expr, name: str) -> ast.expr | None:
    """What a tensor is multiplied by; None for anything else."""
    match node:
        case ast.BinOp(left, ast.Mult(), right) if _is(right, name):
            return left
        case ast.BinOp(left, ast.Mult(), right) if _is(left, name):
            return right
    return None


def _is(node: ast.expr, name: str) -> bool:
    """The tensor itself, its data, or what is detached from it."""
    match node:
        case ast.Name(found):
            return found == name
        case ast.Attribute(ast.Name(found), "data"):
            return found == name
        case ast.Call(ast.Attribute(ast.Name(found), "detach"), [], []):
            return found == name
    return False


def _way_to(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return "itself"
    return "data" if isinstance(node, ast.Attribute) else "detach"


def _is_factor(node: ast.expr, others: tuple[str, ...]) -> bool:
    return all(
        isinstance(part, _FACTOR) and not (isinstance(part, ast.Name) and part.id in others)
        for part in ast.walk(node)
    )
