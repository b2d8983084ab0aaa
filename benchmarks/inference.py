"""What `optimize_model` returns, beside what a person could have picked by hand.

    python -m benchmarks.inference [--accuracy mixed|lossy] [--device cuda] --save FILE

Models of six kinds are searched as by default. Then the model as it is, the one that was returned,
and what a few lines of torch.compile, ONNX Runtime and OpenVINO give without any check are timed
in turns, in the same seconds. What gives other answers than the model is shown, marked with its
error, and is no match for a search for the same answers. For int8 ("lossy") networks that learned
to tell pictures apart are searched, whose accuracy may drop by a hundredth. Nothing else should run
meanwhile.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import slipstream
from benchmarks.claim import Claim, show_claims
from benchmarks.machine import describe_machine
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.leaves import tensors_of
from slipstream.timing import Ratio, ratio_of, time_in_turns
from tests.infer.models import Encoder, Lstm, UNet, mobilenet, resnet, trained

_SECONDS = 12.0
_AS_FAST = 0.97
_LEAST = {"exact": 1.3, "mixed": 2.0, "lossy": 2.5}
_SEARCH_S = 180.0
_SAME = 1e-4  # of a result's size: what rounding in another order makes


def models(times: int = 1) -> dict[str, tuple[nn.Module, Any]]:
    """Small ones of the kinds that people have, in sizes that take some milliseconds; batches are
    `times` as large.
    """
    torch.manual_seed(0)
    return {
        "ResNet, pictures": (resnet(32, 2), torch.randn(8 * times, 3, 96, 96)),
        "ResNet, 1 picture": (resnet(32, 2), torch.randn(1, 3, 96, 96)),
        "MobileNet-like": (mobilenet(32), torch.randn(4 * times, 3, 96, 96)),
        "U-Net": (trained(UNet(16)), torch.randn(times, 3, 128, 128)),
        "transformer encoder": (
            Encoder(128, 3),
            {"ids": torch.randint(0, 100, (4 * times, 64)), "scale": torch.ones(1)},
        ),
        "LSTM": (Lstm(96), torch.randn(8 * times, 40, 8)),
        "perceptron": (
            nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10)),
            torch.randn(64 * times, 64),
        ),
    }


class Patterns:
    """Pictures of ten kinds, under noise: a task that a small network learns in seconds."""

    def __init__(self) -> None:
        self._own = torch.Generator().manual_seed(0)
        coarse = torch.randn(10, 3, 6, 6, generator=self._own)
        self._kinds = nn.functional.interpolate(coarse, (96, 96), mode="bilinear")

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures and their kinds."""
        kinds = torch.randint(0, 10, (size,), generator=self._own)
        noise = torch.randn(size, 3, 96, 96, generator=self._own)
        return self._kinds[kinds] + noise, kinds


def is_right(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The metric."""
    pictures, kinds = batch
    return (model(pictures).argmax(1) == kinds).float()


def taught(model: nn.Module, patterns: Patterns, steps: int = 50) -> nn.Module:
    """It has learned to tell the patterns apart."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        pictures, kinds = patterns.batch(16)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), kinds).backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    """Measure, and show what was found beside its targets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference")
    parser.add_argument("--save", type=Path, help="write the numbers and the machine as JSON")
    parser.add_argument("--only", default="", help="models whose names begin so")
    parser.add_argument("--accuracy", default="exact", choices=tuple(_LEAST))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", type=int, default=1, help="how many times larger batches are")
    parser.add_argument("--budget", type=float, default=_SEARCH_S)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # model, in this process
    options = parser.parse_args()
    if options.one:
        options.save.write_text(json.dumps(measure_one(options.one, options)))
        return
    claims: list[Claim] = []
    tables: dict[str, Any] = {}
    gains = []
    lost = {}
    for name in models():
        is_conv = name.startswith(("ResNet", "MobileNet"))
        if not name.startswith(options.only) or (options.accuracy == "lossy" and not is_conv):
            continue
        # In a process of its own: nothing of one model is left when the next is measured.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "one.json")
            ended = subprocess.run(
                [
                    sys.executable, "-m", "benchmarks.inference", "--one", name,
                    "--accuracy", options.accuracy, "--device", options.device,
                    "--times", str(options.times), "--budget", str(options.budget),
                    "--save", str(file),
                ],
                check=False,
            )  # fmt: skip
            if ended.returncode != 0:
                lost[name] = ended.returncode
                continue
            found = json.loads(file.read_text())
        tables[name] = found["table"]
        gains.append(found["gain"])
        claims += [Claim(**claim) for claim in found["claims"]]
        if options.save:  # what is measured is kept, should the next one never end
            _save(options.save, _with_mean(claims, gains, options.accuracy), lost, tables)
    machine = describe_machine()
    shown = _with_mean(claims, gains, options.accuracy)
    show_claims(shown, f"{machine['processor']}, {machine['cores']} cores, {options.device}")
    for name, code in lost.items():
        print(f"{name}: not measured, its process ended with {code}")
    sys.exit(1 if lost else 0)


def _with_mean(claims: list[Claim], gains: list[float], accuracy: str) -> list[Claim]:
    if not gains:
        return claims
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    of = f"{len(gains)} models"
    return [Claim("geometric mean over eager", mean, of, _LEAST[accuracy]), *claims]


def _save(path: Path, claims: list[Claim], lost: dict[str, int], tables: dict[str, Any]) -> None:
    report = {
        "machine": describe_machine(),
        "command": " ".join(["python -m benchmarks.inference", *sys.argv[1:]]),
        "claims": [claim.as_dict() for claim in claims],
        "lost": lost,
        "tables": tables,
    }
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure_one(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The search's table for a model, the gain over it, and claims."""
    model, example = models(options.times)[name]
    inputs = inputs_of(example).map(lambda tensor: tensor.to(options.device))
    task: dict[str, Any] = {}
    if options.accuracy == "lossy":
        patterns = Patterns()
        size = len(example)
        taught(model, patterns)
        data = [patterns.batch(size) for _ in range(900 // size)]
        data = [(each.to(options.device), kinds.to(options.device)) for each, kinds in data]
        task = {"metric": is_right, "data": data}
    start = time.perf_counter()
    found = slipstream.optimize_model(
        model.to(options.device), inputs, accuracy=options.accuracy, budget_s=options.budget,
        **task,
    )  # fmt: skip
    took = time.perf_counter() - start
    print(f"\n{name}: {took:.0f} s\n{found}", flush=True)
    speeds, errors = measure(model.eval(), inputs, found.model)
    most = _SAME if options.accuracy == "exact" else math.inf
    others = {way: error for way, error in errors.items() if not error < most}
    claims = _claims(name, found.name, speeds, others, took)
    return {
        "table": found.as_dict(),
        "gain": speeds["slipstream"].value,
        "claims": [asdict(claim) for claim in claims],
    }


def measure(
    model: nn.Module, inputs: Inputs, returned: nn.Module
) -> tuple[dict[str, Ratio], dict[str, float]]:
    """How many times faster than the model as it is: what was returned, and what is made by hand
    where that can be done. And how far the answers of the latter are from those of the model.
    """
    calls: dict[str, Callable[[], object]] = {"eager": lambda: inputs(model)}
    calls["slipstream"] = lambda: inputs(returned)
    errors = {}
    with torch.no_grad():
        right = tensors_of(inputs(model))
    device = next(iter(inputs.tensors())).device
    ways = BY_HAND if device.type == "cpu" else COMPILED_BY_HAND
    for name, make in ways.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = make(model, inputs)
                call()
                errors[name] = _error(right, tensors_of(call()))
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
            continue
        calls[name] = call
    wait = torch.cuda.synchronize if device.type == "cuda" else None
    with torch.no_grad():
        taken = time_in_turns(calls, seconds=_SECONDS, wait=wait, is_settled=wait is None)
    speeds = {name: ratio_of(taken["eager"], taken[name]) for name in calls if name != "eager"}
    return speeds, errors


def _error(right: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    """The largest, beside the size of what it is an error of."""
    return max(
        float((one.double() - other.double()).norm() / one.double().norm().clamp(min=1e-30))
        for one, other in zip(right, found, strict=True)
    )


def _compiled(model: nn.Module, inputs: Inputs) -> Callable[[], object]:
    torch._dynamo.reset()
    made = torch.compile(model)

    def call() -> object:
        with torch.no_grad():
            return inputs(made)

    return call


def _autotuned(model: nn.Module, inputs: Inputs) -> Callable[[], object]:
    made = torch.compile(model, mode="max-autotune")

    def call() -> object:
        with torch.no_grad():
            return inputs(made)

    return call


def _onnx(model: nn.Module, inputs: Inputs, folder: str) -> str:
    path = str(Path(folder, "model.onnx"))
    torch.onnx.export(
        model, inputs.args, path, kwargs=dict(inputs.kwargs), dynamo=True, verbose=False,
        external_data=False,
    )  # fmt: skip
    return path


def _with_onnxruntime(model: nn.Module, inputs: Inputs) -> Callable[[], object]:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = _onnx(model, inputs, folder)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    tensors = inputs.tensors()

    def call() -> object:
        feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, feed)]

    return call


def _with_openvino(
    model: nn.Module, inputs: Inputs, settings: dict[str, str] | None = None
) -> Callable[[], object]:
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        path = _onnx(model, inputs, folder)
        compiled = openvino.compile_model(path, "CPU", settings or {})
    tensors = inputs.tensors()

    def call() -> object:
        found = compiled([tensor.numpy() for tensor in tensors])
        return [torch.from_numpy(found[place]) for place in range(len(compiled.outputs))]

    return call


def _with_openvino_in_float32(model: nn.Module, inputs: Inputs) -> Callable[[], object]:
    return _with_openvino(model, inputs, {"INFERENCE_PRECISION_HINT": "f32"})


Way = Callable[[nn.Module, Inputs], Callable[[], object]]
COMPILED_BY_HAND: dict[str, Way] = {
    "torch.compile": _compiled,
    "torch.compile max-autotune": _autotuned,
}
BY_HAND: dict[str, Way] = {
    **COMPILED_BY_HAND,
    "ONNX Runtime": _with_onnxruntime,
    "OpenVINO": _with_openvino,
    "OpenVINO f32": _with_openvino_in_float32,
}


def _claims(
    name: str, variant: str, speeds: dict[str, Ratio], others: dict[str, float], took: float
) -> list[Claim]:
    own = speeds["slipstream"]
    by_hand = {way: speed for way, speed in speeds.items() if way != "slipstream"}
    best = max((s for way, s in by_hand.items() if way not in others), key=lambda s: s.value)
    beside = ", ".join(
        f"{way} {speed.value:.2f}" + (f" (error {others[way]:.0e})" if way in others else "")
        for way, speed in by_hand.items()
    )
    bounds = f"{own.low:.2f} to {own.high:.2f}"
    return [
        Claim(f"{name}: over eager", own.value, f"{bounds}; {variant}", 1.0),
        Claim(f"{name}: over the best by hand", own.value / best.value, beside, _AS_FAST),
        Claim(f"{name}: search", took, "", at_most=_SEARCH_S + 15, unit="s"),
    ]


if __name__ == "__main__":
    main()
