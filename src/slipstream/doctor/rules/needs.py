"""What a run must have had for a rule to say anything of it: without that, silence is no health."""

from collections.abc import Callable

from slipstream.doctor.capture import NEXT, SAVE, START
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms, passes
from slipstream.doctor.rules.replayed import compared

_Need = Callable[[Case], bool]
_FELT = 0.10  # of a step


def _device(case: Case) -> bool:
    return case.on_device


def _loader(case: Case) -> bool:
    return case.loading is not None


def _workers(case: Case) -> bool:
    return case.loading is not None and case.loading.loader.workers > 0


def _no_workers(case: Case) -> bool:
    return case.loading is not None and not case.loading.loader.workers


def _epochs(case: Case) -> bool:
    """Workers were started twice at least."""
    starts = sum(span.kind == START for span in case.capture.spans)
    return _workers(case) and starts > 1


def _pictures(case: Case) -> bool:
    loading = case.loading
    return loading is not None and any(stage.startswith("decode") for stage in loading.stages)


def _tables(case: Case) -> bool:
    return case.loading is not None and "dataset: DataFrame.iloc" in case.loading.stages


def _texts(case: Case) -> bool:
    loading = case.loading
    return loading is not None and any(stage.startswith("tokenize:") for stage in loading.stages)


def _transforms(case: Case) -> bool:
    return case.loading is not None and bool(case.loading.loader.transforms)


def _files(case: Case) -> bool:
    loading = case.loading
    return loading is not None and any(process.opens for process in loading.processes)


def _convolutions(case: Case) -> bool:
    return any(model.get("convolutions") for model in case.capture.model.get("models", ()))


def _order_settled(case: Case) -> bool:
    """No other order was measured to be clearly faster, though it may be no finding."""
    gain = compared(case, "channels-last", learning_ms(case))
    return _convolutions(case) and (gain is None or gain.low_ms < _FELT * case.step_ms)


def _convolutions_on_device(case: Case) -> bool:
    return case.on_device and _convolutions(case)


def _evaluation(case: Case) -> bool:
    return any(not entry.training and not entry.learns for entry in passes(case))


def _other_loaders(case: Case) -> bool:
    loop = case.loading.loader.id if case.loading is not None else None
    return any(s.kind == NEXT and s.detail[0] != loop for s in case.capture.spans)


def _optimizer(case: Case) -> bool:
    return bool(case.capture.optimizers)


def _saves(case: Case) -> bool:
    return any(span.kind == SAVE for span in case.capture.spans)


def _ranks(case: Case) -> bool:
    return any(replay["name"] == "ranks" for replay in case.capture.replays)


_NEEDS: dict[_Need, tuple[str, ...]] = {
    _device: (
        "pageable-copy", "blocking-copy", "copy-on-critical-path", "needless-pinning",
        "cpu-built-tensor", "sync-each-step", "hidden-sync", "timer-without-sync", "no-tf32",
        "no-amp", "launch-bound", "allocator-thrash", "data-parallel", "odd-dimensions",
        "shared-device", "empty-cache-in-loop",
    ),
    _convolutions_on_device: ("cudnn-benchmark-off", "nchw-on-tensor-cores"),
    _convolutions: ("mixed-memory-format", "non-contiguous-input", "conv-bias-before-norm"),
    _order_settled: ("channels-last",),
    _loader: ("slow-sampler", "slow-collate", "wide-dtype", "needless-copy", "storage-wait"),
    _workers: (
        "too-few-workers", "too-many-workers", "library-threads", "shallow-prefetch", "slow-sample",
        "small-shared-memory", "copy-on-write", "large-transfer", "slow-worker-start",
    ),
    _no_workers: ("no-workers", "per-sample-indexing"),
    _epochs: ("workers-restarted", "loader-recreated"),
    _pictures: ("slow-decoder", "oversized-decode", "float-collate", "late-crop"),
    _tables: ("row-by-row",),
    _texts: ("slow-tokenizing",),
    _transforms: ("slow-transform", "heavy-augmentation", "repeated-preprocessing"),
    _files: ("cold-reads", "small-files", "reopened-files", "network-storage"),
    _evaluation: ("eval-with-grad", "unfolded-batchnorm"),
    _other_loaders: ("frequent-evaluation",),
    _optimizer: ("for-loop-optimizer", "zero-grad-memset", "frozen-gradients", "unused-parameters"),
    _saves: ("frequent-checkpoint",),
    _ranks: ("slow-rank", "gradient-sync", "unused-parameter-search"),
}  # fmt: skip
_OF_RULE = {rule: need for need, rules in _NEEDS.items() for rule in rules}


def was_looked_at(rule: str, case: Case) -> bool:
    """Whether the run had what the rule is about."""
    need = _OF_RULE.get(rule)
    return need is None or need(case)
