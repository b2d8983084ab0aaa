"""docs/report.schema.json describes reports, and only reports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.reports import finding, report

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/report.schema.json").read_text(encoding="utf-8")
)
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "null": (type(None),),
}
NOTES = {"$schema", "$defs", "title", "description"}


def errors(value: Any, schema: dict[str, Any], where: str = "report") -> list[str]:
    """The part of JSON Schema that the file uses; another keyword in it is an error, too."""
    found = [f"{where}: unknown keyword {key}" for key in schema if key not in {*CHECKS, *NOTES}]
    for key, check in CHECKS.items():
        if key in schema:
            found += check(value, schema[key], where, schema)
    return found


def check_type(value: Any, names: Any, where: str, _: Any) -> list[str]:
    allowed = [names] if isinstance(names, str) else names
    fits = any(isinstance(value, TYPES[name]) and not isinstance(value, bool) for name in allowed)
    return [] if fits else [f"{where}: {value!r} is no {allowed}"]


def check_properties(value: Any, properties: Any, where: str, _: Any) -> list[str]:
    inside = value if isinstance(value, dict) else {}
    return [
        error
        for name in properties.keys() & inside.keys()
        for error in errors(inside[name], properties[name], f"{where}.{name}")
    ]


def check_others(value: Any, each: Any, where: str, schema: Any) -> list[str]:
    others = value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ()
    return [error for name in others for error in errors(value[name], each, f"{where}.{name}")]


def check_items(value: Any, each: Any, where: str, _: Any) -> list[str]:
    inside = value if isinstance(value, list) else []
    return [error for n, item in enumerate(inside) for error in errors(item, each, f"{where}[{n}]")]


def check_any(value: Any, choices: Any, where: str, _: Any) -> list[str]:
    tried = [errors(value, choice, where) for choice in choices]
    return [] if [] in tried else tried[-1]


def check_required(value: Any, names: Any, where: str, _: Any) -> list[str]:
    inside = value if isinstance(value, dict) else dict.fromkeys(names)
    return [f"{where}: {name} is missing" for name in names if name not in inside]


def check_value(is_right: bool, value: Any, where: str) -> list[str]:
    return [] if is_right else [f"{where}: {value!r}"]


CHECKS: dict[str, Any] = {
    "type": check_type,
    "properties": check_properties,
    "additionalProperties": check_others,
    "items": check_items,
    "anyOf": check_any,
    "required": check_required,
    "const": lambda value, rule, where, _: check_value(value == rule, value, where),
    "enum": lambda value, rule, where, _: check_value(value in rule, value, where),
    "minimum": lambda v, rule, where, _: check_value(isinstance(v, str) or v >= rule, v, where),
    "pattern": lambda v, rule, where, _: check_value(bool(re.search(rule, str(v))), v, where),
    "$ref": lambda v, ref, where, _: errors(v, SCHEMA["$defs"][ref.rpartition("/")[2]], where),
}


@pytest.mark.parametrize(
    "good",
    [
        report(),
        report(ceiling_ms=None),
        report(samples_per_s=None, epoch=None),
        report(samples_per_s=388.3, epoch={"steps": 200, "between_ms": None, "s": 9.04}),
        report(findings=[finding("no-workers", 3.0), finding("item-call", 1.0, None)]),
        report(findings=[{**finding("no-workers", 3.0), "gain": None}], more="of a later version"),
    ],
)
def test_reports_fit(good: dict[str, Any]) -> None:
    assert errors(good, SCHEMA) == []
    assert sum(good["parts"].values()) == pytest.approx(good["step_ms"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "slipstream.report/2"}, "report.schema: 'slipstream.report/2'"),
        ({"step_ms": "3"}, "report.step_ms: '3' is no ['number']"),
        ({"step_ms": -1}, "report.step_ms: -1"),
        ({"parts": {"copy": None}}, "report.parts.copy: None is no ['number']"),
        ({"steps": {"count": 1.5}}, "report.steps.count: 1.5 is no ['integer']"),
        ({"epoch": {"steps": 0, "between_ms": None, "s": 1}}, "report.epoch.steps: 0"),
        ({"epoch": {"steps": 3}}, "report.epoch: s is missing"),
        ({"findings": [{"rule": "x"}]}, "report.findings[0]: title is missing"),
        ({"findings": [finding("No Workers", 1)]}, "report.findings[0].rule: 'No Workers'"),
        ({"findings": [{**finding("x", 1), "gain": {}}]}, "findings[0].gain: how is missing"),
        ({"findings": [{**finding("x", 1), "class": "X"}]}, "report.findings[0].class: 'X'"),
    ],
)
def test_others_do_not(changes: dict[str, Any], message: str) -> None:
    found = errors({**report(), **changes}, SCHEMA)
    assert any(message in error for error in found), found


@pytest.mark.parametrize("name", SCHEMA["required"])
def test_nothing_may_be_missing(name: str) -> None:
    bad = report()
    del bad[name]
    assert errors(bad, SCHEMA) == [f"report: {name} is missing"]


def test_the_schema_is_a_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(report(findings=[finding("no-workers", 3.0)]), SCHEMA)
