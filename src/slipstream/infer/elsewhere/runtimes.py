"""ONNX files opened by a runtime: arrays in, arrays out.

Knows no torch, so that a process that only tries a file starts fast. Whoever opens one gives the
number of threads; no runtime takes more, or keeps cores busy while it waits unless told to.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

Array = npt.NDArray[Any]
Opened = Callable[[Sequence[Array]], list[Array]]


_INPUT = "input_"
_LARGEST_TWICE = 1 << 28  # bytes of weights that may lie in memory twice


def input_name(number: int) -> str:
    """Of the graph's inputs, in order. Those that are not used may be missing in a file."""
    return f"{_INPUT}{number}"


def _number(name: str) -> int:
    return int(name.removeprefix(_INPUT))


@dataclass(frozen=True)
class Runtime:
    """`precision` is what OpenVINO computes in: "f32", "bf16" or "f16". `spins`: threads of ONNX
    Runtime look out for the next call for a while, on a core that nobody else has meanwhile.
    `batch`: the size that most batches have, for which a graph of any size is prepared once more.
    """

    name: Literal["onnxruntime", "openvino"]
    threads: int
    precision: str = "f32"
    spins: bool = False
    batch: int = 0

    @property
    def title(self) -> str:
        """As people write it."""
        return {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}[self.name]

    def open(self, file: Path) -> Opened:
        """What is returned takes the graph's inputs in order, without copying contiguous arrays,
        and gives arrays of the caller's own. Raises what the runtime raises.
        """
        if self.name == "openvino":
            return _OpenVino(file, self.threads, self.precision)
        return _OnnxRuntime(file, self)


class _Shared:
    """What copies of a model have in common: its graph is a constant, and sessions take turns."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


class _OnnxRuntime(_Shared):
    """Safe to call from several threads. Sessions have threads and weights of their own, so that
    for batches of any size is opened when there is another one than usual.
    """

    def __init__(self, file: Path, wish: Runtime) -> None:
        self._wish = wish
        self._lock = threading.Lock()
        any_size = _session(str(file), wish, {})
        self._any: Run | None = _run_of(any_size)
        self._usual, self._file, self._shapes = self._any, b"", dict[int, tuple[int, ...]]()
        inputs = any_size.get_inputs()
        self._inputs = {each.name: _number(each.name) for each in inputs}
        # Only the batch has no size of its own in a graph.
        sizes = {
            size: wish.batch for each in inputs for size in each.shape if isinstance(size, str)
        }
        # Weights too large for one file lie beside it.
        weights = sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
        if sizes and wish.batch and weights < _LARGEST_TWICE:
            # Shapes are constants then, and so is what is computed of them.
            self._any, self._file = None, file.read_bytes()
            usual = _session(self._file, wish, sizes)
            self._usual = _run_of(usual)
            inputs = usual.get_inputs()
            self._shapes = {_number(each.name): tuple(each.shape) for each in inputs}

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        feed = {name: arrays[number] for name, number in self._inputs.items()}
        run = self._usual
        for number, shape in self._shapes.items():
            if arrays[number].shape != shape:
                run = self._of_any_size()
        return run(feed)

    def _of_any_size(self) -> "Run":
        with self._lock:
            if self._any is None:
                self._any = _run_of(_session(self._file, self._wish, {}))
        return self._any


Run = Callable[[Mapping[str, Array]], list[Array]]


def _run_of(session: Any) -> Run:
    """Without the looks that ONNX Runtime's own Python takes at names and kinds in every call: they
    are known here, and a part of a small model's time.
    """
    names = [each.name for each in session.get_outputs()]
    run = getattr(getattr(session, "_sess", None), "run", session.run)

    def call(feed: Mapping[str, Array], held: Any = session) -> list[Array]:
        found: list[Array] = run(names, feed, None)
        return found

    return call


def _session(model: str | bytes, wish: Runtime, sizes: Mapping[str, int]) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = wish.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; they are raised as well
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(wish.spins)))
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class _OpenVino(_Shared):
    """Calls from several threads wait for each other."""

    def __init__(self, file: Path, threads: int, precision: str) -> None:
        self._openvino = _imported_without_telemetry()
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,  # where threads run is the caller's
        }
        compiled = self._openvino.Core().compile_model(str(file), "CPU", settings)
        taken = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        if taken != precision:
            raise RuntimeError(f"OpenVINO computes in {taken} where {precision} was asked for")
        self._request = compiled.create_infer_request()
        self._inputs = [
            _number(next(name for name in each.get_names() if name.startswith(_INPUT)))
            for each in compiled.inputs
        ]
        self._outputs = range(len(compiled.outputs))
        self._lock = threading.Lock()

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        tensor, request = self._openvino.Tensor, self._request
        with self._lock:
            for place, number in enumerate(self._inputs):
                request.set_input_tensor(place, tensor(arrays[number], shared_memory=True))
            for place in self._outputs:
                # The tensor of the call before belongs to whoever made it.
                last = request.get_output_tensor(place)
                request.set_output_tensor(place, tensor(last.element_type, last.shape))
            request.infer()
            return [request.get_output_tensor(place).data for place in self._outputs]


def _imported_without_telemetry() -> Any:
    """OpenVINO tells its maker that it was imported, unless the package that does so is missing."""
    with _hidden("openvino_telemetry"):
        return import_module("openvino")


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """A package that cannot be imported meanwhile."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
