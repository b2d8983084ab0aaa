"""Which fix of `slipstream run` removes which finding of the doctor. Needs no torch."""

# rule → fix
CURES = {
    "slow-decoder": "native-pictures",
    "oversized-decode": "native-pictures",
    "per-sample-indexing": "fast-loader",
    "large-transfer": "fast-loader",
    "library-threads": "fast-loader",
    "workers-restarted": "fast-loader",
    "shallow-prefetch": "fast-loader",
    "no-workers": "parallel-loading",
    "too-few-workers": "more-workers",
    "copy-on-write": "shared-lists",
    "reopened-files": "file-handles",
    "pageable-copy": "non-blocking-copies",
    "blocking-copy": "device-prefetch",
    "copy-on-critical-path": "device-prefetch",
    "sync-each-step": "deferred-values",
    "zero-grad-memset": "zero-grad",
    "non-contiguous-input": "contiguous-inputs",
    "eval-with-grad": "inference-mode",
    "garbage-collection": "garbage-pauses",
    "empty-cache-in-loop": "empty-cache",
    "forced-garbage-collection": "empty-cache",
    "frequent-checkpoint": "async-save",
    "for-loop-optimizer": "fused-optimizer",
    "parameter-loop": "foreach-loops",
    "thread-count": "threads",
    "channels-last": "channels-last",
    "nchw-on-tensor-cores": "channels-last",
    "cudnn-benchmark-off": "cudnn-benchmark",
    "no-tf32": "tf32",
    "no-amp": "autocast",
    "unfolded-batchnorm": "fold-batchnorm",
    "launch-bound": "compile",
}

# Of these, what may round differently.
NUMERIC = frozenset((
    "fused-optimizer", "foreach-loops", "threads", "own-kernels", "channels-last",
    "cudnn-benchmark", "tf32", "autocast", "fold-batchnorm", "compile", "uint8-bus",
    "more-workers",
))  # fmt: skip
