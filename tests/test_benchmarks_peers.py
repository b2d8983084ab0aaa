"""The judge of the doctor and its peers, without running them."""

import pytest

from benchmarks.doctor_peers import judge
from benchmarks.doctor_peers_cases import CASES, Case
from benchmarks.doctor_peers_tools import Said, line_of_stack
from benchmarks.doctor_peers_traced import with_trace_step

_OF = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_fault_has_a_place(case: Case) -> None:
    assert any(file == case.path.name for file, _ in case.right_lines())
    assert case.worker_lines() <= case.right_lines()


def test_a_healthy_part_of_the_script_is_no_place() -> None:
    source = _OF["slow_transform"].path.read_text().splitlines()
    right = _OF["slow_transform"].right_lines()
    for text, expected in (("return x - x.mean()", False), ("work(self.ms)", True)):
        number = next(n for n, line in enumerate(source, start=1) if text in line)
        assert (("slow_transform_sick.py", number) in right) is expected


def test_what_is_judged() -> None:
    case = _OF["slow_transform"]
    line = next(iter(case.worker_lines()))
    good = judge(case, Said([line], "It is slow.", "slow-transform", 11.4, 22.0), 10.0, 20.0)
    assert good.names_place
    assert good.is_right_cause
    assert good.is_close
    assert good.sees_worker
    assert good.slowdown == pytest.approx(1.1)
    bad = judge(case, Said([("training.py", 1)], "It is slow.", "compute", 11.6), 10.0, 20.0)
    assert bad.names_cause
    assert not (bad.names_place or bad.is_right_cause or bad.is_close or bad.sees_worker)
    assert bad.slowdown is None


def test_stacks_of_workers_start_in_the_worker() -> None:
    parent = ['process 1:"python a.py"', "<module> (a.py:9)"]
    child = [*parent, 'process 2:"python a.py"', "epoch (a.py:3)", "_worker_loop (worker.py:1)"]
    assert line_of_stack([*parent, "sleep (time.py:1)"], ("a.py",)) == ("a.py", 9)
    assert line_of_stack([*child, "get (queue.py:1)"], ("a.py",)) is None
    assert line_of_stack([*child, "Data.__getitem__ (a.py:5)"], ("a.py",)) == ("a.py", 5)
    assert line_of_stack([*parent, "_find_and_load (<frozen importlib>:1)"], ("a.py",)) is None


def test_its_calls_go_around_the_innermost_training_loop() -> None:
    source = """
for _ in range(2):
    for x in loader:
        model(x).backward()
    for x in validation:
        model(x)
"""
    traced = with_trace_step(source)
    assert traced.count("trace_step(model)") == 1
    at = traced.index("with traceml_ai.trace_step")
    assert traced.index("for x in loader") < at < traced.index("backward") < traced.index("valid")
    assert with_trace_step("x = 1\n") == "x = 1\n"
