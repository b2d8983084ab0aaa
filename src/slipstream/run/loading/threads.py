"""Whether torch's operations on samples may round differently with another number of threads."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# torch does less than this in one thread, however many there are.
_GRAIN = 1 << 15
# Moves, or the same arithmetic for every element by itself, which no thread can round differently.
_NAMES = """
    __get__ __set__ __len__ __array__ __contains__ __bool__ __int__ __float__ __index__ __repr__
    __format__ __getitem__ __setitem__ __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__
    __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __div__ __and__ __or__ __xor__
    __invert__ __neg__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iter__ __deepcopy__ __reduce_ex__
    abs abs_ add add_ all allclose any arange argmax argmin as_strided as_tensor atleast_1d
    atleast_2d bool broadcast_to byte cat ceil chunk clamp clamp_ clip clip_ clone concat
    concatenate contiguous copy_ cpu data_ptr detach dim diagonal div div_ divide double
    element_size empty empty_like eq equal expand expand_as fill_ flatten flip fliplr flipud float
    floor from_numpy full full_like gather ge gt half hstack index_fill index_select int is_complex
    is_contiguous is_floating_point isfinite isinf isnan item le long lt masked_fill masked_fill_
    masked_select max maximum min minimum moveaxis movedim mul mul_ multiply narrow ne neg nelement
    new_empty new_full new_ones new_tensor new_zeros nonzero normal_ numel numpy ones ones_like pad
    permute rand rand_like randint randn random_ randperm ravel relu relu_ repeat requires_grad_
    reshape resize_ resolve_conj resolve_neg roll rot90 round select shape short sign size
    sort split squeeze stack storage storage_offset stride sub sub_ subtract swapaxes t take tensor
    tile to tolist topk transpose tril triu type type_as unbind unfold uniform_ unflatten
    unsqueeze untyped_storage view view_as vstack where zero_ zeros zeros_like
"""
_FREE = frozenset(_NAMES.split())


class ThreadDependence(TorchFunctionMode):
    """While active, looks at every operation; `found` is the first that may round differently."""

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name not in _FREE and not self.found and _largest((*args, *kwargs.values())) >= _GRAIN:
            self.found = name or repr(func)
        return func(*args, **kwargs)


def _largest(args: Any) -> int:
    sizes = [
        thing.numel()
        for arg in args
        for thing in (arg if isinstance(arg, (list, tuple)) else (arg,))
        if isinstance(thing, torch.Tensor)
    ]
    return max(sizes, default=0)
