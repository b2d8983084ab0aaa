"""Smaller models that have to be trained again: pruned structurally, or taught by a larger one."""

from slipstream.infer.compress.distill import distill
from slipstream.infer.compress.result import Compressed
from slipstream.infer.compress.search import compress

__all__ = ["Compressed", "compress", "distill"]
