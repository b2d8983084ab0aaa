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
    "crowded_cores",
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
_OF_THE_LOOP = (
    "frequent_checkpoint",
    "logging_in_loop",
    "garbage_collection",
    "forced_garbage_collection",
    "empty_cache_in_loop",
    "python_in_loop",
    "parameter_loop",
    "zero_grad_memset",
    "for_loop_optimizer",
    "repeated_work",
    "repeated_compilation",
    "anomaly_detection",
    "deterministic_mode",
    "eval_with_grad",
    "frequent_evaluation",
    "graph_held",
    "frozen_gradients",
    "unused_parameters",
    "activation_checkpoint",
    "non_contiguous_input",
    "mixed_memory_format",
    "channels_last",
    "unfolded_batchnorm",
    "float64_model",
    "thread_count",
    "small_batch",
    "gradient_sync",
    "unused_parameter_search",
    "slow_rank",
    "profiler_left_on",
    "retained_graph",
    "conv_bias_before_norm",
    "unfused_attention",
    "swapping",
)
_OF_DEVICES = (
    "pageable_copy",
    "blocking_copy",
    "copy_on_critical_path",
    "needless_pinning",
    "cpu_built_tensor",
    "sync_each_step",
    "hidden_sync",
    "timer_without_sync",
    "no_tf32",
    "no_amp",
    "cudnn_benchmark_off",
    "nchw_on_tensor_cores",
    "launch_bound",
    "allocator_thrash",
    "data_parallel",
    "odd_dimensions",
    "shared_device",
)


@dataclass(frozen=True)
class Rule:
    """`healthy` is said where it finds nothing."""

    name: str
    healthy: str
    find: Callable[[Case], list[Finding]]


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is."""
    modules = (
        import_module(f"{__name__}.{name}") for name in (*_MODULES, *_OF_THE_LOOP, *_OF_DEVICES)
    )
    return tuple(Rule(module.NAME, module.HEALTHY, module.find) for module in modules)
