"""Real reports fit docs/report.schema.json, and it describes all that is in them."""

from typing import Any

import pytest

from tests.doctor.record_scripts import report_of
from tests.doctor.test_schema import SCHEMA, errors

RECORDED = ["no_workers_sick", "no_workers_healthy", "cold_reads_sick", "repeated_compilation_sick"]


def undescribed(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    """Keys that the schema does not know."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return min((undescribed(value, each, where) for each in schema["anyOf"][1:]), key=len)
    found = []
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, inside in value.items():
            if name in known:
                found += undescribed(inside, known[name], f"{where}.{name}")
            elif others is None:
                found.append(f"{where}.{name}")
    if isinstance(value, list):
        for item in value:
            found += undescribed(item, schema.get("items", {}), f"{where}[]")
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_report_fits(name: str) -> None:
    report = report_of(name)
    assert errors(report, SCHEMA) == []


@pytest.mark.parametrize("name", RECORDED)
def test_every_key_of_a_real_report_is_described(name: str) -> None:
    assert undescribed(report_of(name), SCHEMA, "report") == []


def test_a_ladder_and_a_storage_are_described() -> None:
    rung = {"name": "cached batch", "ms": 3.0, "low": 2.9, "high": 3.1}
    storage = {
        "path": "data", "filesystem": "ext4", "sequential_mb_s": 900.0, "random_mb_s": None,
        "cold_mb_s": None, "needed_mb_s": 12.0,
    }  # fmt: skip
    report = {**report_of("no_workers_sick"), "ladder": [rung], "storage": [storage]}
    assert errors(report, SCHEMA) == []
    assert undescribed(report, SCHEMA, "report") == []
    assert undescribed({**report, "ladder": [{**rung, "new": 1}]}, SCHEMA, "report") == [
        "report.ladder[].new"
    ]
