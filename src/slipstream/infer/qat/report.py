"""What became of each layer: how small it is, and whether its arithmetic is real."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from slipstream.tables import text_of

Arithmetic = Literal["integer", "float"]


@dataclass(frozen=True)
class Line:
    """Of one layer. `arithmetic` is what it computes with; `why` says what led to that."""

    name: str
    weights: str
    activations: str
    arithmetic: Arithmetic
    why: str
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class Report:
    """Of one conversion. Bytes are those of all parameters and buffers of the model, as they are
    saved; they are counted and not computed from the number of bits.
    """

    lines: list[Line]
    bytes_before: int
    bytes_after: int

    @property
    def smaller(self) -> float:
        """How many times."""
        return self.bytes_before / max(self.bytes_after, 1)

    @property
    def speed(self) -> str:
        """What there is to say about speed."""
        quantized = [line for line in self.lines if line.weights != "float"]
        integer = sum(line.arithmetic == "integer" for line in quantized)
        if not integer:
            return (
                "simulated: weights are unpacked for each call and multiplied in floating-point, "
                "which is not faster than the model was"
            )
        others = ", the others simulate that in floating-point" if integer < len(quantized) else ""
        return (
            f"{integer} of {len(quantized)} quantized layers compute with whole numbers{others}. "
            "Whether that is faster depends on the processor: measure it"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"smaller": self.smaller, "speed": self.speed}

    def __str__(self) -> str:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for name in ("layer", "weights", "inputs", "arithmetic", "bytes", "why"):
            right = name == "bytes"
            table.add_column(name, justify="right" if right else "left", no_wrap=name != "why")
        for line in self.lines:
            size = f"{line.bytes_before:,} → {line.bytes_after:,}"
            table.add_row(
                line.name, line.weights, line.activations, line.arithmetic, size, line.why
            )
        size = f"{self.bytes_before:,} → {self.bytes_after:,} bytes, {self.smaller:.1f} x smaller"
        return "\n".join([text_of(table, 100), f"size: {size}", f"speed: {self.speed}"])
