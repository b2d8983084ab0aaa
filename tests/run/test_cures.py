"""The doctor names fixes without importing them: the table has to be theirs."""

from slipstream.doctor.rules import all_rules
from slipstream.run.apply import FIXES
from slipstream.run.cures import CURES, NUMERIC


def test_the_table_is_what_the_fixes_say() -> None:
    said = {rule: fix.name for fix in FIXES for rule in fix.cures}
    assert said == CURES


def test_cured_rules_exist() -> None:
    assert set(CURES) <= {rule.name for rule in all_rules()}


def test_names_are_unique() -> None:
    names = [fix.name for fix in FIXES]
    assert len(set(names)) == len(names)


def test_it_knows_which_may_round() -> None:
    assert {fix.name for fix in FIXES if fix.kind == "N"} == NUMERIC
