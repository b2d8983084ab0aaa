"""Which fix of `slipstream run` removes which finding of the doctor. Needs no torch."""

# rule → fix
CURES = {
    "slow-decoder": "native-pictures",
    "oversized-decode": "native-pictures",
    "per-sample-indexing": "fast-loader",
    "large-transfer": "fast-loader",
    "library-threads": "fast-loader",
    "no-workers": "parallel-loading",
    "reopened-files": "file-handles",
    "blocking-copy": "non-blocking-copies",
    "pageable-copy": "non-blocking-copies",
    "sync-each-step": "deferred-values",
    "zero-grad-memset": "zero-grad",
    "non-contiguous-input": "contiguous-inputs",
    "eval-with-grad": "inference-mode",
    "garbage-collection": "garbage-pauses",
    "empty-cache-in-loop": "empty-cache",
    "forced-garbage-collection": "empty-cache",
    "frequent-checkpoint": "async-save",
}
