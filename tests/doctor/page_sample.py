"""Believable data for the page: a loop that is starved by two workers, simulated and dressed up."""

import random
from dataclasses import asdict, replace
from typing import Any

from slipstream.doctor.pipeline import Pipeline
from slipstream.doctor.simulate import simulate
from slipstream.doctor.view import FindingView, LaneView, PageView

_SCRIPT = "/home/ana/plankton/train.py"
_CODE = {
    41: "    transforms.RandomResizedCrop(224),",
    42: "    transforms.ToTensor(),",
    43: "])",
    44: "dataset = ImageFolder(root, transform=transform)",
    45: "loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)",
    46: "",
    47: "for epoch in range(epochs):",
    48: "    for images, labels in loader:",
    49: "        images, labels = images.to(device), labels.to(device)",
    71: "        optimizer.step()",
    72: "        running += loss.item()",
    73: "        if step % 50 == 0:",
}


def sample_pipeline(**changes: Any) -> Pipeline:
    """Two workers, 64 pictures a batch, a GPU that wants four times as many."""
    draw = random.Random(7)
    fetch = [draw.gauss(330, 24) + (160 if draw.random() < 0.08 else 0) for _ in range(60)]
    pipeline = Pipeline(
        workers=2,
        prefetch=2,
        batch_size=64,
        cores=8,
        fetch_ms=tuple(round(ms, 3) for ms in fetch),
        loop_ms=tuple(round(draw.gauss(41, 1.2), 3) for _ in range(60)),
        fetch_cpu_share=0.88,
        decode_share=0.61,
        storage_ms=4.0,
        hand_over_ms=2.4,
        copy_ms=5.1,
        device=True,
        launch_ms=12.5,
        run_ahead=0,
    )
    return replace(pipeline, **changes)


def sample_page(**changes: Any) -> PageView:
    """The whole page. `changes` replace entries of it."""
    pipeline = sample_pipeline()
    lanes, steps = _lanes(pipeline)
    step_ms = (steps[-1][1] - steps[0][0]) / len(steps)
    compute = {"forward": 13.1, "backward": 24.8, "optimizer": 3.4, "copy to device": 5.1}
    sync = {"sync (.item)": 4.2, "unattributed": 3.0}
    wait = step_ms - sum(compute.values()) - sum(sync.values())
    page: PageView = {
        "report": {
            "schema": "slipstream.report/1",
            "verdict": "The GPU waits for data two thirds of the time: two workers decode pictures"
            " at a quarter of the speed that it can take them.",
            "notes": ["Other programs took 0.9 of 8 cores meanwhile."],
            "step_ms": step_ms,
            "ceiling_ms": 46.2,
            "parts": {"wait for data": wait, **compute, **sync},
            "findings": _findings(step_ms, wait),
            "healthy": [
                {"rule": "mixed-precision", "title": "Matrix products use bfloat16."},
                {"rule": "cudnn-benchmark", "title": "Convolutions are tuned; shapes stay."},
                {"rule": "worker-restart", "title": "Workers live through epochs."},
                {"rule": "small-files", "title": "Files are large enough for the storage."},
                {"rule": "memory-growth", "title": "Memory does not grow."},
            ],
            "overhead": {"share": 0.008, "steps_with_hooks": 60, "steps_without": 60},
            "machine": {
                "processor": "AMD EPYC 7763, 8 of 64 cores",
                "gpu": "NVIDIA A100-SXM4-40GB",
                "memory_gb": 64,
                "python": "3.12.4",
                "torch": "2.13.0+cu130",
                "slipstream": "0.1.0",
            },
        },
        "script": _SCRIPT,
        "began_at": "2026-11-14T16:21:07+00:00",
        "clock": "device",
        "lanes": lanes,
        "steps": steps,
        "excerpts": [
            {"where": f"{_SCRIPT}:45", "lines": _lines(41, 49)},
            {"where": f"{_SCRIPT}:49", "lines": _lines(47, 49)},
            {"where": f"{_SCRIPT}:72", "lines": _lines(71, 73)},
        ],
        "ladder": [
            {"name": "bare compute", "ms": 46.2, "low": 45.8, "high": 46.7},
            {"name": "+ copy", "ms": 51.4, "low": 50.7, "high": 52.2},
            {"name": "+ collate", "ms": 53.0, "low": 52.1, "high": 54.1},
            {"name": "+ transforms", "ms": 78.6, "low": 75.9, "high": 81.0},
            {"name": "+ decode", "ms": 164.9, "low": 158.8, "high": 170.4},
            {"name": "+ warm read", "ms": 171.3, "low": 163.0, "high": 179.2},
            {"name": "+ cold read", "ms": 183.5, "low": 168.4, "high": 199.9},
        ],
        "memory": [
            (ms, 2100 + 1900 * min(1, ms / 3000) + 60 * ((ms // 200) % 3), 9800.0 if ms else 0.0)
            for ms in range(0, 16_000, 100)
        ],
        "storage": [
            {
                "path": "/data/plankton/train",
                "filesystem": "nfs4",
                "sequential_mb_s": 840.0,
                "random_mb_s": 212.0,
                "cold_mb_s": 96.0,
                "needed_mb_s": 152.0,
            },
            {
                "path": "/scratch/cache",
                "filesystem": "ext4 (nvme)",
                "sequential_mb_s": 3120.0,
                "random_mb_s": 1890.0,
                "cold_mb_s": None,
                "needed_mb_s": None,
            },
        ],
        "pipeline": asdict(pipeline),
        "measured_step_ms": step_ms,
    }
    page.update(changes)  # type: ignore[typeddict-item]
    return page


def _findings(step_ms: float, wait: float) -> list[FindingView]:
    return [
        {
            "rule": "too-few-workers",
            "title": f"The loop waits {wait:.0f} ms of every step for 2 workers; 6 cores are idle.",
            "where": f"{_SCRIPT}:45",
            "cost_ms": wait,
            "share": wait / step_ms,
            "gain": {"low_ms": wait - 21, "high_ms": wait - 6, "how": "measured"},
            "fix": "Give the loader 8 workers.",
            "class": "E",
            "next": "slipstream run --fix workers --workers 8 train.py",
            "places": [],
        },
        {
            "rule": "sync-in-loop",
            "title": "loss.item() makes the host wait for the GPU in every step.",
            "where": f"{_SCRIPT}:72",
            "cost_ms": 4.2,
            "share": 4.2 / step_ms,
            "gain": {"low_ms": 2.9, "high_ms": 4.2, "how": "bounded"},
            "fix": "Add up losses on the device and read them every 50 steps.",
            "class": "E",
            "next": None,
            "places": [f"{_SCRIPT}:88", f"{_SCRIPT}:93"],
        },
        {
            "rule": "pageable-copy",
            "title": "Batches are copied from pageable memory, 38.5 MB in 5.1 ms.",
            "where": f"{_SCRIPT}:49",
            "cost_ms": 5.1,
            "share": 5.1 / step_ms,
            "gain": {"low_ms": 2.2, "high_ms": 5.1, "how": "simulated"},
            "fix": "Pin the loader's memory, and copy the next batch while this one computes.",
            "class": "E",
            "next": "slipstream run --fix pin-memory --fix gpu-prefetch train.py",
            "places": [],
        },
        {
            "rule": "large-pictures",
            "title": "Pictures of 2048 by 1536 are decoded whole for crops of 224 by 224.",
            "where": None,
            "cost_ms": 0.0,
            "share": 0.0,
            "gain": None,
            "fix": "Pack them: a crop then reads and decodes only its own tiles.",
            "class": "N",
            "next": "slipstream pack /data/plankton/train",
            "places": [],
        },
    ]


def _lines(first: int, last: int) -> list[tuple[int, str]]:
    return [(number, _CODE.get(number, "")) for number in range(first, last + 1)]


def _lanes(pipeline: Pipeline) -> tuple[list[LaneView], list[tuple[float, float]]]:
    """Of the simulation, with the device's steps split into their parts."""
    outcome = simulate(pipeline)
    lanes: list[LaneView] = [
        {"name": lane.name, "kind": lane.kind, "spans": list(lane.spans)} for lane in outcome.lanes
    ]
    for lane in lanes:
        if lane["kind"] == "device":
            lane["spans"] = [part for span in lane["spans"] for part in _parts(*span)]
    ends = [
        span[2]
        for lane in lanes
        if lane["kind"] == "device"
        for span in lane["spans"]
        if span[0] == "optimizer"
    ]
    return lanes, list(zip([0.0, *ends], ends, strict=False))


def _parts(kind: str, start: float, end: float, label: str) -> list[tuple[str, float, float, str]]:
    if kind != "compute":
        return [(kind, start, end, label)]
    cuts = [start + (end - start) * share for share in (0, 0.32, 0.92, 1)]
    kinds = ("forward", "backward", "optimizer")
    return [(kinds[n], cuts[n], cuts[n + 1], label) for n in range(3)]
