"""Training with quantized weights and activations, and what is left of a model afterwards."""

from slipstream.infer.qat.convert import Converted, convert_qat
from slipstream.infer.qat.prepare import prepare_qat

__all__ = ["Converted", "convert_qat", "prepare_qat"]
