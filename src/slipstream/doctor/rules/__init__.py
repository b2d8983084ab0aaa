"""One file for each cause: a pure function of a `Case`, with a page, docs/rules/NAME.md."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case

_MODULES = (
    # Loading.
    "no_workers",
    "too_few_workers",
    "too_many_workers",
    "library_threads",
    "quota_ignored",
    "workers_restarted",
    "loader_recreated",
    "slow_worker_start",
    "shallow_prefetch",
    "slow_sample",
    "small_shared_memory",
    "copy_on_write",
    "per_sample_indexing",
    "large_transfer",
    "small_files",
    "network_storage",
    "cold_reads",
    "reopened_files",
    "oversized_decode",
    "slow_decoder",
    "repeated_preprocessing",
    "late_crop",
    "float_collate",
    "slow_transform",
    "heavy_augmentation",
    "slow_tokenizing",
    "row_by_row",
    "slow_collate",
    "wide_dtype",
    "storage_wait",
    "slow_sampler",
    "needless_copy",
)


@dataclass(frozen=True)
class Rule:
    """`healthy` is said where it finds nothing."""

    name: str
    healthy: str
    find: Callable[[Case], list[Finding]]


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is."""
    modules = (import_module(f"{__name__}.{name}") for name in _MODULES)
    return tuple(Rule(module.NAME, module.HEALTHY, module.find) for module in modules)
