"""The pages in docs/rules, and their index."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from slipstream.doctor.rules import all_rules

PAGES = Path(__file__).parents[2] / "docs/rules"
INDEX = (PAGES / "README.md").read_text(encoding="utf-8")
ALL_PAGES = sorted(path for path in PAGES.glob("*.md") if path.name != "README.md")


def test_every_rule_stands_in_the_index_once_with_a_line_about_it() -> None:
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(\1\.md\) \| \S.* \|$", INDEX, re.MULTILINE)
    assert Counter(rows) == Counter(rule.name for rule in all_rules())


def test_the_index_leads_to_every_page_and_to_no_other() -> None:
    assert set(re.findall(r"\]\(([a-z0-9-]+\.md)\)", INDEX)) == {page.name for page in ALL_PAGES}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_as_python_is_python(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        ast.parse(block, page.name)
