"""Small numbers beside large ones: an error that is nothing to a whole tensor can be all there is
of one of its columns, as of the scores beside the corners of boxes.

How well a column can be computed at all, the model's own error in it tells: one that is the small
difference of large numbers has more of it. So it is what a variant's error is measured by, beside
the size of the column.
"""

import torch

from slipstream.infer.change import Kind

_LEAST_ROWS = 16  # fewer may be right by chance
_FEW_ZEROS = 0.1  # of a column; more are put there by a layer, and say nothing of what it was given
# Times the size of a column, and times the model's own error in it. Numbers of 16 bits have 2**16
# times the error of those of 32, which it had.
_ALLOWED: dict[Kind, tuple[float, float]] = {
    "exact": (2.0**-15, 10.0),
    "mixed": (0.1, 2.0**18),
}
_EPSILON = torch.finfo(torch.float32).eps
_OF_ONE = 2.0**-22  # what libraries may err where a function has its values around 0.5 or 0


def fault_in_a_column(
    tensor: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, kind: Kind
) -> str | None:
    """Of a result whose second or last dimension may be columns."""
    if kind not in _ALLOWED:
        return None
    for dim in {1, exact.dim() - 1} if exact.dim() > 1 else ():
        width = exact.shape[dim]
        if width < 2 or exact.numel() < _LEAST_ROWS * width:
            continue
        columns = _columns(tensor, dim), _columns(eager, dim), _columns(exact, dim)
        found = _fault(*columns, kind, torch.finfo(eager.dtype).eps)
        if found is not None:
            column, share = found
            return (
                f"its error in column {column} of dimension {dim} is {share:.1%} of what is there"
            )
    return None


def _columns(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return tensor.double().movedim(dim, 0).flatten(1)


def _fault(
    tensor: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, kind: Kind, epsilon: float
) -> tuple[int, float] | None:
    """The column that is worst, and its error as a share of its size; `epsilon` is that of the
    model's own numbers.
    """
    error, own, size = (_size(each) for each in (tensor - exact, eager - exact, exact))
    of_size, of_own = _ALLOWED[kind]
    of_own = max(10.0, of_own * min(1.0, _EPSILON / epsilon))
    of_one = torch.where(exact.abs().amax(1) <= 1, _OF_ONE, 0.0)
    too_much = error / (of_size * size + of_own * own + of_one)
    is_told = torch.isfinite(exact).all(1) & ((exact == 0).double().mean(1) <= _FEW_ZEROS)
    too_much = torch.where(is_told & (size > 0), too_much, 0.0)
    worst = int(too_much.argmax())
    return None if not too_much[worst] > 1 else (worst, float(error[worst] / size[worst]))


def _size(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().mean(1).sqrt()
