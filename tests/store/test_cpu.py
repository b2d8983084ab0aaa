"""Cores by affinity and cgroup quota."""

import os
from pathlib import Path

import pytest

from slipstream.cpu import throttled_ns, usable_cores


def _place(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


def test_this_machine() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 16),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "rubbish"}, 16),
        (
            {
                "proc/self/cgroup": "0::/outer/inner\n",
                "sys/fs/cgroup/outer/cpu.max": "300000 100000",
                "sys/fs/cgroup/outer/inner/cpu.max": "800000 100000",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            1,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            16,
        ),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, text in files.items():
        _place(tmp_path, name, text)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        ({"sys/fs/cgroup/cpu.stat": "usage_usec 5\nthrottled_usec 70\n"}, [70_000]),
        ({"sys/fs/cgroup/cpu.stat": "usage_usec 5\n"}, []),
        ({"sys/fs/cgroup/cpu.stat": "rubbish"}, []),
        (
            {
                "proc/self/cgroup": "0::/outer/inner\n",
                "sys/fs/cgroup/outer/cpu.stat": "throttled_usec 70",
                "sys/fs/cgroup/outer/inner/cpu.stat": "throttled_usec 0",
            },
            [0, 70_000],
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat": "nr_throttled 3\nthrottled_time 90",
            },
            [90],
        ),
    ],
)
def test_time_stopped_by_a_quota(
    tmp_path: Path, files: dict[str, str], expected: list[int]
) -> None:
    for name, text in files.items():
        _place(tmp_path, name, text)
    assert sorted(throttled_ns(tmp_path).values()) == expected
