"""The rules about loading: on recordings of scripts with a known truth, and at their edges."""

from typing import Any

import pytest

from slipstream.doctor.capture import FORWARD, NEXT, Line
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules import (
    cold_reads,
    copy_on_write,
    crowded_cores,
    large_transfer,
    library_threads,
    loader_recreated,
    needless_copy,
    network_storage,
    no_workers,
    oversized_decode,
    per_sample_indexing,
    quota_ignored,
    reopened_files,
    row_by_row,
    slow_collate,
    slow_sample,
    slow_sampler,
    slow_transform,
    small_files,
    small_shared_memory,
    storage_wait,
    too_few_workers,
    too_many_workers,
    wide_dtype,
    workers_restarted,
)
from slipstream.doctor.rules.precedence import arrange
from tests.doctor.made_case import MS, made_case, made_loader


def cost(findings: list[Finding]) -> float:
    assert len(findings) == 1
    return findings[0].cost_ms


class TestWorkers:
    def test_without_workers_the_whole_wait_is_the_cost(self) -> None:
        case = made_case(
            wait_ms=24, stages={"dataset": (24, 1)}, loader=made_loader(workers=0, prefetch=None)
        )
        assert cost(no_workers.find(case)) == pytest.approx(24, rel=0.02)

    def test_workers_gain_less_where_the_model_has_the_cores(self) -> None:
        def gain(loop_cores: float) -> Gain:
            case = made_case(
                wait_ms=24, rest_ms=40, stages={"dataset": (24, 24)}, cores=2,
                loader=made_loader(workers=0, prefetch=None),
            )  # fmt: skip
            case.capture.settings["loop_cores"] = loop_cores
            (found,) = no_workers.find(case)
            assert found.gain is not None
            return found.gain

        alone, crowded = gain(1.0), gain(2.0)
        assert alone.low_ms == pytest.approx(23, abs=1)
        assert crowded.low_ms < 12 < crowded.high_ms < 16

    def test_workers_that_compute_slow_the_model_down(self) -> None:
        def found(
            alone_ms: float, own: float, others: float = 0.0, model: Any = ()
        ) -> list[Finding]:
            case = made_case(wait_ms=1, rest_ms=60, stages={"dataset": (80, 40)}, cores=2)
            capture = case.capture
            for span in capture.spans:
                if span.kind == FORWARD:
                    span.detail = [0, True, True]
            capture.model["models"] = [{"with_gradient": 4, **dict(model)}, {"elements": 9}]
            capture.settings["used"] = {"own": own, "others": others, "cores": 2.0}
            times = [alone_ms] * 5
            capture.replays.append(
                {"name": "alone", "model": 0, "now_ms": times, "then_ms": times}
            )  # fmt: skip
            return crowded_cores.find(case)

        assert cost(found(25, 1.95)) == pytest.approx(35)
        assert cost(found(5, 1.95)) == pytest.approx(40)  # no more than workers compute
        assert found(52, 1.95) == []  # caches
        assert found(25, 1.95, model={"shapes": [[k] for k in range(4)]}) == []  # of many sizes
        assert found(25, 1.4) == []  # there are cores for all
        assert cost(found(25, 1.3, 0.6)) == pytest.approx(35 * 40 / (40 + 0.6 * 61), rel=0.02)

    def test_data_in_memory_needs_no_workers(self) -> None:
        case = made_case(
            wait_ms=4, stages={"dataset": (0.1, 0.1), "fetch": (2, 2), "collate": (1.9, 1.9)},
            loader=made_loader(workers=0, batch_size=512),
        )  # fmt: skip
        assert no_workers.find(case) == []
        assert cost(per_sample_indexing.find(case)) == pytest.approx(4, rel=0.1)

    def test_a_quick_batch_is_not_worth_a_worker(self) -> None:
        case = made_case(wait_ms=1, stages={"dataset": (1, 1)}, loader=made_loader(workers=0))
        assert no_workers.find(case) == []

    def test_more_workers_gain_what_the_slower_side_leaves(self) -> None:
        case = made_case(wait_ms=15, stages={"dataset": (25, 1)}, loader=made_loader(workers=1))
        assert cost(too_few_workers.find(case)) == pytest.approx(15, rel=0.05)

    def test_more_workers_do_not_help_without_cores(self) -> None:
        busy = made_case(
            wait_ms=15, stages={"dataset": (25, 25)}, loader=made_loader(workers=1), cores=2
        )
        assert too_few_workers.find(busy) == []

    def test_workers_that_wait_for_storage_need_no_cores(self) -> None:
        waiting = made_case(
            wait_ms=15, stages={"dataset": (25, 1)}, loader=made_loader(workers=1), cores=2
        )
        assert too_few_workers.find(waiting) != []

    def test_too_many_cost_what_the_loop_waits_for_a_core(self) -> None:
        def case(workers: int) -> list[Finding]:
            return too_many_workers.find(
                made_case(
                    wait_ms=0.1, stages={"dataset": (40, 4)}, delay_ms=36, loop_delay_ms=3,
                    loader=made_loader(workers=workers), cores=4,
                )
            )  # fmt: skip

        assert cost(case(16)) == pytest.approx(3, rel=0.05)
        assert case(3) == []

    def test_many_workers_are_late_with_the_first_batch_of_an_epoch(self) -> None:
        def found(**used: float) -> list[Finding]:
            case = made_case(
                wait_ms=0.1, epochs=3, stages={"dataset": (100, 20)}, delay_ms=80, cores=4,
                loader=made_loader(workers=16, persistent=True),
            )  # fmt: skip
            for span in case.capture.spans:
                if span.kind == NEXT and span.detail[2] == 0:
                    span.start = span.end - 90 * MS
            case.capture.settings["used"] = {"own": 1.0, "others": 0.0, "cores": 4.0, **used}
            return too_many_workers.find(case)

        # Sixteen that share four cores take 80 ms, one alone 20, in every 40 steps.
        assert cost(found()) == pytest.approx(60 / 40, rel=0.05)
        assert "each epoch begins 60 ms late" in found()[0].title
        assert found(own=3.9) == []  # no core is idle: fewer had the same to do
        assert found(others=2.9) == []

    def test_threads_of_libraries_are_seen_by_their_processor_time(self) -> None:
        def found(parallel_ns: int) -> list[Finding]:
            return library_threads.find(
                made_case(
                    wait_ms=20, stages={"dataset": (60, 20)}, delay_ms=40, cores=2,
                    facts={"parallel_cpu": parallel_ns}, threads=6, library_threads={"cv2": 4},
                )
            )  # fmt: skip

        assert "cv2 4" in found(20 * 40_000_000)[0].title
        assert found(20 * 1_000_000) == []

    def test_a_quota_that_stops_the_process(self) -> None:
        case = made_case(wait_ms=1)
        assert quota_ignored.find(case) == []
        case.capture.settings |= {"stopped": 2.0, "used": {"own": 6.0, "others": 0, "cores": 8}}
        assert cost(quota_ignored.find(case)) == pytest.approx(0.25 * case.step_ms)
        case.capture.settings["used"]["own"] = 0.1  # others in the group used it up
        assert cost(quota_ignored.find(case)) == pytest.approx(0.2 * case.step_ms)


class TestStarts:
    def test_starts_are_shared_among_the_steps(self) -> None:
        case = made_case(wait_ms=0.1, epochs=3, start_ms=200)
        assert cost(workers_restarted.find(case)) == pytest.approx(200 / 40, rel=0.1)

    def test_persistent_workers_are_healthy(self) -> None:
        case = made_case(wait_ms=0.1, epochs=3, start_ms=200, loader=made_loader(persistent=True))
        assert workers_restarted.find(case) == []

    def test_one_epoch_says_nothing(self) -> None:
        assert workers_restarted.find(made_case(wait_ms=0.1, start_ms=200)) == []

    def test_a_loader_made_again_is_another_cause(self) -> None:
        loader = made_loader(facts={"made": 3})
        case = made_case(wait_ms=0.1, epochs=3, start_ms=200, loader=loader)
        assert workers_restarted.find(case) == []
        assert cost(loader_recreated.find(case)) == pytest.approx(200 / 40, rel=0.1)


class TestStages:
    def test_a_dear_transform_is_named(self) -> None:
        case = made_case(
            wait_ms=10, stages={"transform: Blur": (36, 36), "dataset": (4, 4)},
            facts={"transforms": {"transform: Blur": {"where": "train.py:30", "calls": 6}}},
        )  # fmt: skip
        found = slow_transform.find(case)
        assert found[0].where == "train.py:30"
        assert cost(found) == pytest.approx(10, rel=0.05)

    def test_a_transform_whose_time_is_hidden_costs_nothing(self) -> None:
        case = made_case(wait_ms=0.2, stages={"transform: Blur": (16, 16), "dataset": (1, 1)})
        assert slow_transform.find(case) == []

    def test_the_line_that_waits_is_named(self) -> None:
        lines = (Line("train.py:5", "__getitem__", "", "dataset", 90),)
        case = made_case(
            wait_ms=20, stages={"dataset": (480, 10)}, loader=made_loader(workers=16), cores=2,
            lines=lines,
        )  # fmt: skip
        assert storage_wait.find(case)[0].where == "train.py:5"
        assert too_few_workers.find(case) == []

    def test_a_collate_function_of_the_scripts(self) -> None:
        stages = {"collate": (36.0, 36.0), "dataset": (4.0, 4.0)}
        own = made_loader(facts={"collate_at": "train.py:7"}, collate="pad")
        assert cost(slow_collate.find(made_case(wait_ms=10, stages=stages, loader=own))) > 9
        assert slow_collate.find(made_case(wait_ms=10, stages=stages)) == []

    def test_rows_of_pandas(self) -> None:
        stage = "dataset: DataFrame.iloc"
        case = made_case(
            wait_ms=10, stages={stage: (30, 30), "dataset": (10, 10)}, counts={stage: 160}
        )
        assert cost(row_by_row.find(case)) == pytest.approx(10, rel=0.05)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_what_pandas_does_with_a_row_counts_too(self, workers: int) -> None:
        stage = "dataset: DataFrame.iloc"
        lines = (
            Line("train.py:3", "__getitem__", "pandas.core.frame.DataFrame._ixs", stage, 10),
            Line("train.py:4", "__getitem__", "pandas.core.base.to_numpy", "dataset", 20),
            Line("train.py:5", "__getitem__", "", "dataset", 10),
            Line("train.py:9", "main", "", "", 500),
        )
        case = made_case(
            wait_ms=40, rest_ms=5, stages={stage: (10, 10), "dataset": (30, 30)},
            counts={stage: 320 // max(1, workers)}, lines=lines if workers else (),
            loader=made_loader(workers=workers),
        )  # fmt: skip
        case.capture.lines = [] if workers else list(lines)
        with_all = cost(row_by_row.find(case))
        for process in case.capture.processes:
            process.lines = []
        case.capture.lines = []
        assert with_all > 2 * cost(row_by_row.find(case))

    def test_a_sampler_that_is_slow_once_an_epoch(self) -> None:
        once = made_loader(facts={"index": [41, 4_000_000_000 + 40_000, [4_000_000_000]]})
        assert cost(slow_sampler.find(made_case(wait_ms=1, loader=once))) == pytest.approx(
            100, rel=0.01
        )
        quick = made_loader(facts={"index": [41, 410_000, [20_000]]})
        assert slow_sampler.find(made_case(wait_ms=1, loader=quick)) == []


class TestStorage:
    def test_one_file_opened_for_each_sample(self) -> None:
        case = made_case(
            wait_ms=10, stages={"read: h5py.File": (30, 30), "dataset": (10, 10)},
            counts={"read: h5py.File": 160}, opens=160, opened_again=159,
        )  # fmt: skip
        assert cost(reopened_files.find(case)) == pytest.approx(10, rel=0.05)

    def test_files_opened_once_an_epoch_are_not_reopened(self) -> None:
        case = made_case(
            wait_ms=10, stages={"read: open": (30, 30), "dataset": (10, 10)}, epochs=4,
            counts={"read: open": 640}, opens=640, opened_again=480,
            loader=made_loader(facts={"samples": 320}), read_chars=640 * 1000,
        )  # fmt: skip
        assert reopened_files.find(case) == []
        assert cost(small_files.find(case)) == pytest.approx(10, rel=0.05)

    def test_files_of_a_network(self) -> None:
        def found(kind: str) -> list[Finding]:
            return network_storage.find(
                made_case(
                    wait_ms=10, stages={"read: open": (36, 2), "dataset": (4, 4)},
                    facts={"filesystems": {"/data": kind}},
                )
            )  # fmt: skip

        assert cost(found("nfs4")) == pytest.approx(10, rel=0.05)
        assert found("ext4") == []

    def test_bytes_that_come_from_the_disk(self) -> None:
        def found(from_disk: int) -> list[Finding]:
            return cold_reads.find(
                made_case(
                    wait_ms=10, stages={"dataset": (40, 5)}, read_chars=1 << 30,
                    read_bytes=from_disk,
                )
            )  # fmt: skip

        assert cost(found(1 << 30)) == pytest.approx(10, rel=0.05)
        assert found(1 << 20) == []


class TestBytes:
    def test_pictures_many_times_too_large(self) -> None:
        loader = made_loader(tensors=[["[0]", "uint8", [8, 3, 100, 100], 240_000, False, True]])

        def found(pixels: int) -> list[Finding]:
            return oversized_decode.find(
                made_case(
                    wait_ms=10, stages={"decode: Pillow": (36, 36), "dataset": (4, 4)},
                    loader=loader, facts={"pictures": {"JPEG": [160, 160 * pixels]}},
                )
            )  # fmt: skip

        assert found(1_000_000) != []
        assert found(20_000) == []

    def test_pictures_too_large_are_named_with_the_line_that_decodes(self) -> None:
        def where(*lines: Line) -> str | None:
            tensors = [["[0]", "uint8", [8, 3, 100, 100], 240_000, False, True]]
            [found] = oversized_decode.find(
                made_case(
                    wait_ms=10, stages={"decode: Pillow": (36, 36), "dataset": (4, 4)},
                    loader=made_loader(tensors=tensors), lines=lines,
                    facts={"pictures": {"JPEG": [160, 160_000_000]}},
                )
            )  # fmt: skip
            return found.where

        resizes = Line("train.py:6", "__getitem__", "resize", "transform: Image.resize", 90)
        decodes = Line("train.py:5", "__getitem__", "load", "decode: Pillow", 40)
        assert where(resizes, decodes) == "train.py:5"
        assert where(resizes) == "train.py:3"  # where samples are read

    def test_double_precision(self) -> None:
        def found(dtype: str) -> list[Finding]:
            tensors = [["[0]", dtype, [8, 100_000], 6_400_000, False, True, "cpu"]]
            loader = made_loader(workers=0, tensors=tensors, batch_bytes=6_400_000)
            stages = {"collate": (20.0, 20.0), "dataset": (1.0, 1.0)}
            return wide_dtype.find(made_case(wait_ms=21, stages=stages, loader=loader))

        assert cost(found("float64")) == pytest.approx(10)
        assert found("float32") == []

    def test_arrays_that_are_pickled(self) -> None:
        loader = made_loader(facts={"array_bytes": 16 << 20})
        case = made_case(wait_ms=20, hand_over_ms=12, loader=loader)
        assert cost(large_transfer.find(case)) == pytest.approx(20)
        assert large_transfer.find(made_case(wait_ms=0.3, loader=loader)) == []

    def test_shared_memory_that_is_too_small(self) -> None:
        case = made_case(wait_ms=0.1, loader=made_loader(batch_bytes=20 << 20))
        case.capture.machine["shared_memory_bytes"] = 64 << 20
        assert cost(small_shared_memory.find(case)) == 0
        case.capture.machine["shared_memory_bytes"] = 64 << 30
        assert small_shared_memory.find(case) == []

    def test_shared_pages_that_become_a_workers_own(self) -> None:
        mib = 1 << 20
        shared = [[0, 10 * mib, 900 * mib], [1, 60 * mib, 850 * mib], [2, 110 * mib, 800 * mib]]
        own = [[0, 10 * mib, 900 * mib], [1, 60 * mib, 900 * mib], [2, 110 * mib, 900 * mib]]
        assert copy_on_write.find(made_case(wait_ms=0.1, memory=shared)) != []
        assert copy_on_write.find(made_case(wait_ms=0.1, memory=own)) == []


class TestJitter:
    def test_a_few_samples_take_far_longer(self) -> None:
        shape = {"11": 150, "18": 5}

        def found(delay_ms: float) -> list[Finding]:
            return slow_sample.find(
                made_case(
                    wait_ms=10, stages={"dataset": (40, 4)}, facts={"sample_shape": shape},
                    delay_ms=delay_ms,
                )
            )  # fmt: skip

        assert cost(found(0)) == pytest.approx(10, rel=0.1)
        assert found(30) == []  # they waited for a core


class TestPrecedence:
    @staticmethod
    def finding(rule: str, cost_ms: float) -> Finding:
        return Finding(rule, "", None, cost_ms, "", "E")

    def rules(self, **costs: float) -> list[str]:
        given = [self.finding(name.replace("_", "-"), ms) for name, ms in costs.items()]
        return [finding.rule for finding in arrange(given)]

    def test_the_dearest_comes_first(self) -> None:
        assert self.rules(slow_sampler=2, workers_restarted=9) == [
            "workers-restarted", "slow-sampler",
        ]  # fmt: skip

    def test_waste_stands_before_who_could_hide_it(self) -> None:
        assert self.rules(no_workers=20, reopened_files=18) == ["reopened-files", "no-workers"]
        assert self.rules(no_workers=20, reopened_files=5) == ["no-workers", "reopened-files"]

    def test_work_stands_before_too_few_workers(self) -> None:
        assert self.rules(too_few_workers=20, slow_transform=18) == [
            "slow-transform", "too-few-workers",
        ]  # fmt: skip
        assert self.rules(no_workers=20, slow_transform=18)[0] == "no-workers"

    def test_waiting_is_not_said_twice(self) -> None:
        assert self.rules(too_few_workers=20, storage_wait=21) == ["too-few-workers"]
        assert self.rules(too_few_workers=8, storage_wait=21)[0] == "storage-wait"


def test_a_slow_dataset_and_its_copies_are_two_causes_with_their_own_lines() -> None:
    copies = "convert: torch.tensor"
    lines = (
        Line("train.py:5", "smooth", "", "dataset", 120),
        Line("train.py:9", "__getitem__", "slipstream.doctor.record.stages.call", copies, 90),
    )
    case = made_case(
        wait_ms=46, stages={"dataset": (27, 27), copies: (19, 19)}, lines=lines,
        loader=made_loader(workers=0, prefetch=None),
    )  # fmt: skip
    found = arrange([*no_workers.find(case), *needless_copy.find(case), *slow_transform.find(case)])
    assert [(finding.rule, finding.where) for finding in found][1:] == [
        ("slow-transform", "train.py:5"), ("needless-copy", "train.py:9"),
    ]  # fmt: skip
    assert [finding.cost_ms for finding in found] == pytest.approx([46, 27, 19], rel=0.05)
