"""The page in a real browser: it shows what it is given, asks for nothing, and answers to keys."""

import copy
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.doctor.html import template, write_page
from slipstream.doctor.view import PageView
from tests.doctor.browser import CHROMIUM, Browser, chromium
from tests.doctor.page_sample import sample_page

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)
_LARGEST = 150_000
_HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!--\u2028${alert(1)}&lt;b&gt;"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Browser:
    """The sample, at the size of a desk."""
    browser.send("Emulation.setDeviceMetricsOverride", width=1200, height=900,
                 deviceScaleFactor=1, mobile=False)  # fmt: skip
    return _open(browser, sample_page(), tmp_path)


def _open(browser: Browser, page: PageView, folder: Path) -> Browser:
    write_page(page, folder / "page.html")
    browser.problems.clear()
    browser.requests.clear()
    browser.open(folder / "page.html")
    return browser


def _predicted_ms(browser: Browser) -> float:
    return float(browser.text("#predicted-step").removesuffix(" ms").replace(",", ""))


def test_the_page_is_small_and_sealed() -> None:
    text = template()
    assert len(text.encode()) < _LARGEST
    assert "default-src 'none'" in text
    assert "unsafe" not in text.partition("</head>")[0].partition("<style>")[0]
    # XML namespaces are names, not addresses.
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
    assert {address for address in addresses if "www.w3.org" not in address} == set()


def test_data_cannot_end_its_element(tmp_path: Path) -> None:
    page = sample_page(script=_HOSTILE)
    write_page(page, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert len(data) == 1
    assert not set("<>&\u2028\u2029") & set(data[0])
    assert json.loads(data[0]) == json.loads(json.dumps(page))


def test_numbers_that_json_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_page(sample_page(measured_step_ms=float("nan")), tmp_path / "page.html")


@needs_chromium
def test_it_opens_without_errors_and_without_requests(opened: Browser) -> None:
    assert opened.problems == []
    assert len(opened.requests) == 1
    assert opened.requests[0].startswith("file://")
    assert "two workers decode" in opened.text("h1")
    headings = opened.value("[...document.querySelectorAll('h2')].map((h) => h.textContent)")
    assert headings[:8] == ["Where a step goes", "Findings", "Timeline", "Ladder", "Memory, MB",
                            "Storage", "Healthy", "What if"]  # fmt: skip


@needs_chromium
def test_findings_are_ordered_by_cost(opened: Browser) -> None:
    rules = opened.value("[...document.querySelectorAll('.tags code')].map((c) => c.textContent)")
    assert rules == ["too-few-workers", "pageable-copy", "sync-in-loop", "large-pictures"]
    assert "num_workers=2" in opened.text(".line.here")


@needs_chromium
def test_sliders_change_the_prediction_by_keyboard(opened: Browser) -> None:
    before = _predicted_ms(opened)
    assert "Workers" in opened.text("#predicted-limit")
    opened.focus("#workers")
    opened.press("ArrowRight", 4)
    more = _predicted_ms(opened)
    assert more < 0.5 * before
    opened.focus("#decode")
    opened.press("ArrowRight", 6)
    assert _predicted_ms(opened) < more
    assert "The loop itself" in opened.text("#predicted-limit")
    opened.focus("#ahead")
    opened.press(" ")
    assert opened.value("document.querySelector('#ahead').checked") is True
    assert opened.problems == []


@needs_chromium
def test_every_control_changes_something(opened: Browser) -> None:
    for control, key in (("prefetch", "ArrowRight"), ("batch", "ArrowRight"), ("pinned", " ")):
        before = opened.text(".prediction")
        opened.focus(f"#{control}")
        opened.press(key)
        assert opened.text(".prediction") != before, control


@needs_chromium
def test_the_best_setting_is_found_and_taken_back(opened: Browser) -> None:
    before = _predicted_ms(opened)
    opened.value(
        """new Promise((done) => {
          const button = [...document.querySelectorAll('#what-if .controls button')][0];
          button.click();
          const look = () => (button.disabled ? setTimeout(look, 10) : done());
          look();
        })"""
    )
    assert _predicted_ms(opened) < 0.5 * before
    assert int(opened.text("#what-if output")) > 4
    opened.value("[...document.querySelectorAll('#what-if .controls button')][1].click()")
    assert _predicted_ms(opened) == before


@needs_chromium
def test_a_simulation_takes_no_longer_than_a_frame_or_two(opened: Browser) -> None:
    opened.focus("#workers")
    took = []
    for _ in range(8):
        opened.press("ArrowRight")
        took.append(float(re.findall(r"[\d.]+", opened.text("#took"))[0]))
    assert sorted(took)[len(took) // 2] < 30


@needs_chromium
def test_the_timeline_answers_to_keys(opened: Browser) -> None:
    lanes, said = "#timeline .lanes", "#timeline .said"
    opened.focus(lanes)
    first = opened.text(said)
    assert "waits for data" in first
    opened.press("+")
    assert opened.text(said) != first
    opened.press("0")
    assert opened.text(said) != first
    opened.press(".", 2)
    assert opened.text(said).startswith("loop: ")
    opened.press("ArrowDown")
    assert opened.text(said).startswith("device: ")
    painted = "document.querySelector('#timeline canvas').toDataURL()"
    before = opened.value(painted)
    opened.press("-")
    opened.press("+", 2)
    opened.press("ArrowLeft")
    assert opened.value(painted) != before


@needs_chromium
def test_hovering_a_span_names_it(opened: Browser) -> None:
    box = opened.value(
        """(() => {
          document.querySelector('#timeline').scrollIntoView({ behavior: 'instant' });
          const lanes = document.querySelector('#timeline .lanes');
          const { left, top, width } = lanes.getBoundingClientRect();
          return [left, top, width];
        })()"""
    )
    opened.send(
        "Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] * 0.4, y=box[1] + 35
    )
    assert re.match(r"loop: .* ms, from", opened.text("#timeline .tip"))


@needs_chromium
def test_tab_reaches_what_can_be_used(opened: Browser) -> None:
    reached = []
    for _ in range(60):
        opened.press("Tab")
        reached.append(
            opened.value("document.activeElement.id || document.activeElement.className")
        )
    wanted = [
        "theme",
        "lanes",
        "workers",
        "prefetch",
        "batch",
        "decode",
        "pinned",
        "ahead",
        "order",
    ]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)


@needs_chromium
def test_colours_follow_the_system_until_chosen(opened: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    opened.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    opened.settle()
    dark = opened.value(background)
    opened.value("document.querySelector('#theme').click()")
    light = opened.value(background)
    opened.send("Emulation.setEmulatedMedia", features=[])
    assert sum(map(int, re.findall(r"\d+", dark))) < 200 < sum(map(int, re.findall(r"\d+", light)))


@needs_chromium
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, tmp_path: Path) -> None:
    browser.send("Emulation.setDeviceMetricsOverride", width=360, height=740,
                 deviceScaleFactor=2, mobile=True)  # fmt: skip
    _open(browser, sample_page(), tmp_path)
    assert browser.value("document.documentElement.scrollWidth") <= 360
    assert browser.problems == []


@needs_chromium
def test_hostile_strings_are_shown_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    page = copy.deepcopy(sample_page(script=_HOSTILE))
    finding = page["report"]["findings"][0]
    finding["title"] = finding["fix"] = finding["next"] = finding["rule"] = _HOSTILE
    finding["places"] = [_HOSTILE]
    page["report"]["verdict"] = _HOSTILE
    page["report"]["healthy"][0]["title"] = _HOSTILE
    page["report"]["machine"][_HOSTILE] = _HOSTILE
    page["report"]["parts"] = {_HOSTILE: 10.0}
    page["excerpts"][0]["lines"] = [(45, _HOSTILE)]
    page["lanes"][0]["name"] = _HOSTILE
    page["ladder"][0]["name"] = page["storage"][0]["path"] = _HOSTILE
    _open(browser, page, tmp_path)
    assert browser.problems == []
    assert len(browser.requests) == 1
    assert browser.value("document.images.length") == 0
    assert "owned" not in browser.value("document.title").split("\u2013")[-1]
    for place in ("h1", ".script", ".card h3", ".card .fix", ".command code", ".line.here",
                  "#healthy li", "footer", "#parts th", "#ladder th", "#storage code"):  # fmt: skip
        assert _HOSTILE in browser.text(place), place
    assert html.escape("<img") in browser.value("document.querySelector('h1').innerHTML")


@needs_chromium
def test_a_page_with_little_in_it_opens(browser: Browser, tmp_path: Path) -> None:
    page = sample_page(
        lanes=[], steps=[], excerpts=[], ladder=[], memory=[], storage=[], pipeline=None
    )
    page["report"] |= {"findings": [], "healthy": [], "ceiling_ms": None, "parts": {}}
    _open(browser, page, tmp_path)
    assert browser.problems == []
    assert "Nothing that costs" in browser.text("#findings")
