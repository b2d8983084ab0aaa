"""All fixes, and how they are put in place."""

from collections.abc import Iterable

from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.fixes import (
    autocast,
    channels_last,
    compile_model,
    contiguous_inputs,
    copies,
    cudnn_benchmark,
    deferred_values,
    device_prefetch,
    empty_cache,
    evaluation,
    fast_loader,
    file_handles,
    fold_batchnorm,
    foreach_loops,
    foreach_optimizer,
    fused_optimizer,
    garbage,
    kept_memory,
    more_workers,
    native_optimizer,
    native_pictures,
    own_kernels,
    parallel_loading,
    saving,
    shared_lists,
    tf32,
    threads,
    uint8_bus,
    zero_grad,
)

# In the order in which they are applied.
FIXES: tuple[Fix, ...] = (
    native_pictures.FIX,
    fast_loader.FIX,
    parallel_loading.FIX,
    shared_lists.FIX,  # around what starts workers
    file_handles.FIX,
    copies.FIX,
    device_prefetch.FIX,
    deferred_values.FIX,
    kept_memory.FIX,
    zero_grad.FIX,
    contiguous_inputs.FIX,
    evaluation.FIX,
    garbage.FIX,
    empty_cache.FIX,
    saving.FIX,
    more_workers.FIX,  # around what starts them
    uint8_bus.FIX,
    native_optimizer.FIX,
    fused_optimizer.FIX,
    foreach_optimizer.FIX,  # behind the one that does more
    foreach_loops.FIX,
    threads.FIX,
    own_kernels.FIX,
    channels_last.FIX,
    cudnn_benchmark.FIX,
    tf32.FIX,
    autocast.FIX,
    fold_batchnorm.FIX,
    compile_model.FIX,  # the dearest to try
)


def fix_named(name: str) -> Fix:
    """Raises `KeyError`."""
    return next(fix for fix in FIXES if fix.name == name)


def apply_all(names: Iterable[str], situation: Situation) -> dict[str, Undo]:
    """Put them in place, in the order of `FIXES`; one that fails is left out and noted. Returns
    what takes each away.
    """
    order = {fix.name: number for number, fix in enumerate(FIXES)}
    undo = {}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        try:
            undo[name] = fix_named(name).apply(situation)
            situation.in_place.add(name)
        except Exception as error:
            situation.give_up(name, error)
    return undo
