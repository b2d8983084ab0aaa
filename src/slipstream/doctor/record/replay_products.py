"""Products and attention of a pass again, on random numbers: as they are, and as they could be."""

from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from slipstream.doctor.record.products import Attention, Product, Products
from slipstream.doctor.record.stopwatch import Stopwatch, Work

_MOST_REPLAYS = 3
_MOST_MEMORY = 0.1  # of what the device has free, for one factor or result
_WIDE = 512  # from here on the next multiple of 64 is near
_MOST_HEADS = 16
_LEAST_ROWS = 16  # below, attention takes no time


def replay_products(seen: Products, number: int, watch: Stopwatch) -> list[dict[str, Any]]:
    """Those that tensor cores get in odd pieces, and attention by hand, the largest first."""
    odd = sorted((p for p in seen.products.values() if is_odd(p)), key=_work, reverse=True)
    by_hand = [a for a in seen.attentions.values() if min(a.shape[1:3]) >= _LEAST_ROWS]
    by_hand.sort(key=lambda a: a.count * a.shape[0] * a.shape[1] * a.shape[2], reverse=True)
    found = [_padded(product, number, watch) for product in odd[:_MOST_REPLAYS]]
    found += [_fused(attention, number, watch) for attention in by_hand[:_MOST_REPLAYS]]
    return [entry for entry in found if entry is not None]


def is_odd(product: Product) -> bool:
    """Whether rows of the second factor begin at addresses that tensor cores read in two goes."""
    if product.device != "cuda" or product.dtype not in _alignments():
        return False
    _, rows, inner, columns = product.shape
    each = _alignments()[product.dtype]
    return bool(inner % each or columns % each) and min(rows, inner, columns) >= each


def padded(size: int, each: int) -> int:
    """The next size that is a multiple: of 64 where that is near."""
    each = 64 if size >= _WIDE else each
    return -(-size // each) * each


def _alignments() -> dict[torch.dtype, int]:
    found = {torch.float16: 8, torch.bfloat16: 8}
    if torch.get_float32_matmul_precision() != "highest":
        found[torch.float32] = 4
    return found


def _work(product: Product) -> int:
    batch, rows, inner, columns = product.shape
    return product.count * batch * rows * inner * columns


def _padded(product: Product, number: int, watch: Stopwatch) -> dict[str, Any] | None:
    batch, rows, inner, columns = product.shape
    each = _alignments()[product.dtype]
    then_shape = (batch, rows, padded(inner, each), padded(columns, each))
    if not _has_room(product, then_shape):
        return None
    now, then = (_multiply(product, shape) for shape in (product.shape, then_shape))
    about = {"model": number, "shape": list(product.shape), "padded": list(then_shape)}
    return _entry("odd-product", product, now, then, watch, about)


def _has_room(product: Product, shape: tuple[int, int, int, int]) -> bool:
    batch, rows, inner, columns = shape
    largest = batch * max(rows * inner, inner * columns, rows * columns)
    return largest * product.dtype.itemsize < _MOST_MEMORY * torch.cuda.mem_get_info()[0]


def _multiply(product: Product, shape: tuple[int, int, int, int]) -> Work:
    batch, rows, inner, columns = shape
    a = torch.randn(batch, rows, inner, device=product.device, dtype=product.dtype)
    b = torch.randn(columns, inner, device=product.device, dtype=product.dtype)
    for factor in (a, b):
        factor.requires_grad_(product.with_grad)

    def run() -> None:
        result = linear(a[0], b) if batch == 1 else a @ b.T
        if product.with_grad:
            torch.autograd.grad(result, (a, b), torch.empty_like(result))

    return run


def _fused(attention: Attention, number: int, watch: Stopwatch) -> dict[str, Any] | None:
    batch, queries, keys, width = attention.shape
    like: dict[str, Any] = {"device": attention.device, "dtype": attention.dtype}
    few = range(1, min(_MOST_HEADS, batch // 2) + 1)
    heads = max((count for count in few if batch % count == 0), default=1)

    def factor(rows: int, width: int) -> torch.Tensor:
        if not attention.is_gathered:
            made = torch.randn(batch, 1, rows, width, **like)
        else:
            made = torch.randn(batch // heads, rows, heads, width, **like).transpose(1, 2)
        return made.requires_grad_(attention.with_grad)

    q, k = factor(queries, width), factor(keys, width)
    v = factor(keys, attention.values_width)
    mask = torch.zeros(queries, keys, **like) if attention.is_masked else None

    def by_hand() -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) * width**-0.5
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        return weights @ v

    def fused() -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def both_ways(function: Any) -> Work:
        def run() -> None:
            result = function()
            if attention.with_grad:
                torch.autograd.grad(result, (q, k, v), torch.empty_like(result))

        return run

    about = {"model": number, "shape": list(attention.shape)}
    return _entry("attention", attention, both_ways(by_hand), both_ways(fused), watch, about)


def _entry(
    name: str, what: Product | Attention, now: Work, then: Work, watch: Stopwatch,
    about: dict[str, Any],
) -> dict[str, Any] | None:  # fmt: skip
    times = watch.compare(now, then, 0.8)
    if times is None:
        return None
    now_ms, then_ms = ([ms * what.count for ms in each] for each in times)
    return {
        "name": name, "where": what.where, "count": what.count, "now_ms": now_ms,
        "then_ms": then_ms, "dtype": str(what.dtype).removeprefix("torch."), **about,
    }  # fmt: skip
