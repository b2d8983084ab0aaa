"""What is called healthy was looked at."""

from slipstream.doctor.report import make_report
from slipstream.doctor.rules import all_rules
from slipstream.doctor.rules.needs import _OF_RULE
from tests.doctor.made_case import made_case, made_loader


def healthy(**options: object) -> set[str]:
    case = made_case(**options)  # type: ignore[arg-type]
    return {entry["rule"] for entry in make_report(case.capture)["healthy"]}


def test_only_rules_that_exist_need_something() -> None:
    assert set(_OF_RULE) <= {rule.name for rule in all_rules()}


def test_without_a_device_nothing_is_said_of_one() -> None:
    assert not healthy(wait_ms=0.1) & {"pageable-copy", "no-tf32", "shared-device"}


def test_without_workers_nothing_is_said_of_them() -> None:
    alone = healthy(wait_ms=0.1, loader=made_loader(workers=0, prefetch=None))
    assert "too-few-workers" not in alone
    assert "no-workers" in alone
    together = healthy(wait_ms=0.1, loader=made_loader(workers=2))
    assert "too-few-workers" in together
    assert "no-workers" not in together


def test_one_epoch_says_nothing_of_the_next() -> None:
    assert "workers-restarted" not in healthy(wait_ms=0.1)
    assert "workers-restarted" in healthy(wait_ms=0.1, epochs=3, start_ms=0.1)
