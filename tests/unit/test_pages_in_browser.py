"""Pages as a reader meets them: laid out by a real browser at three widths, in the dark, on paper and without a mouse."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from respath.comparison.report import Report
from respath.files import write_text
from respath.papers import needs
from respath.reporting import overview
from respath.reporting.page import render
from tests.golden.toy import run_id, toy, toy_project
from tests.unit.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: install the package chromium")

#: Shows every closed part, then lists what is wrong with where text stands: [what, text].
LAYOUT = """(() => {
  const wrong = [], root = document.documentElement, boxes = [];
  if (root.scrollWidth > root.clientWidth) wrong.push(['scrolls sideways', root.scrollWidth + ' of ' + root.clientWidth]);
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, text = node.data.trim();
    if (!text || parent.closest('svg, .skip, script, style') || !parent.checkVisibility()) continue;
    // Heads that a phone does not draw are cut to a dot on purpose; screen readers still read them.
    if (getComputedStyle(parent.closest('thead') || parent).clipPath !== 'none') continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let inside = null;
    for (let e = parent; e; e = e.parentElement) if (scrolls(e)) { inside = e; break; }
    for (const box of range.getClientRects()) {
      if (box.width < 1) continue;
      if (!inside && (box.left < -1 || box.right > root.clientWidth + 1)) wrong.push(['leaves the page', text]);
      for (let e = parent; e && e !== document.body; e = e.parentElement) {
        const own = e.getBoundingClientRect(), hides = ['hidden', 'clip'].includes(getComputedStyle(e).overflowX);
        if (hides && (box.right > own.right + 1 || box.left < own.left - 1)) wrong.push(['is cut', text]);
      }
      // Letters fill about the middle of a line's box.
      const rim = box.height * 0.28;
      boxes.push([box.left, box.top + rim, box.right, box.bottom - rim, parent, text]);
    }
  }
  boxes.sort((a, b) => a[1] - b[1]);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j][1] < boxes[i][3]; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      if (a[4].closest('.math') && b[4].closest('.math')) continue;
      const wide = Math.min(a[2], b[2]) - Math.max(a[0], b[0]), high = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
      if (wide > 2 && high > 1) wrong.push(['overlap', a[5] + ' | ' + b[5]]);
    }
  }
  return wrong;
})()"""

#: Texts whose contrast with what is behind them is below AA.
CONTRAST = """(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const found = numbers(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const wrong = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg, style, .drawn') || !e.checkVisibility()) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize), bold = style.fontWeight >= 700;
    const [a, b] = [light(numbers(style.color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5)) wrong.push([ratio, e.textContent.trim().slice(0, 40)]);
  }
  return wrong;
})()"""

OPEN = "document.querySelectorAll('details').forEach(e => e.open = true)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A judged report, one of a scale that judges nothing and has a run that diverged, and one without any run."""
    folder = tmp_path_factory.mktemp("pages")
    project, smoke = toy_project("paper"), toy_project()
    made = {
        "judged": toy(folder / "judged", "paper"),
        "smoke": toy(folder / "smoke", diverged={run_id(smoke, "S", "mix")}),
        "nothing": toy(folder / "nothing", "paper", skip=set(needs.all_runs(project))),
    }
    for name, (project, results) in made.items():
        report = Report(project, results, "toy")
        overview.write(project, {"toy": report}, folder / name)
        write_text(folder / name / "toy/index.html", render(report, folder))
    return {name: folder / name / "toy/index.html" for name in made}


@pytest.mark.parametrize("name", ["judged", "smoke", "nothing"])
def test_no_text_is_cut_overlaps_or_leaves_the_page_at_any_width_in_the_dark_or_on_paper(
    browser, pages, name
):
    ways = [(1400, {}), (900, {}), (390, {}), (1400, {"dark": True}), (700, {"paper": True})]
    for width, way in ways:
        browser.show(pages[name], width, **way)
        assert browser.run(LAYOUT) == [], (width, way)
        browser.run(OPEN)
        assert browser.run(LAYOUT) == [], (width, way, "opened")
        if width == 1400:
            assert browser.run(CONTRAST) == [], way
    assert browser.errors == []


def test_the_page_over_all_papers_and_those_of_architectures_are_as_sound_and_their_links_lead_somewhere(
    browser, pages
):
    folder = pages["judged"].parent.parent
    others = [folder / "index.html", *sorted((folder / "models/toy").glob("*.html"))]
    assert len(others) > 3
    for path in others:
        for width, way in ((1400, {}), (1400, {"dark": True}), (390, {})):
            browser.show(path, width, **way)
            assert browser.run(LAYOUT) == [] and browser.run(CONTRAST) == [], (path.name, width, way)
        for link in browser.run("[...document.querySelectorAll('a[href], link[href]')].map(e => e.href)"):
            place, _, name = link.removeprefix("file://").partition("#")
            if not link.startswith("file:"):
                continue
            text = Path(unquote(place)).read_text()
            assert not name or f'id="{name}"' in text, link
    assert "On the printed side?" in (folder / "models/toy/mix.html").read_text()
    assert browser.errors == []


@pytest.mark.parametrize("name", ["judged", "smoke", "nothing"])
def test_the_first_screen_holds_headline_verdicts_and_main_claims(browser, pages, name):
    browser.show(pages[name], 1400)
    bottom = browser.run("document.querySelector('.first').getBoundingClientRect().bottom")
    assert bottom <= 900
    seen = browser.run("document.querySelector('.first').innerText")
    assert "not judged at this scale" in seen and "The main claims." in seen
    assert browser.run("document.querySelectorAll('.bar nav a').length") == 5


def test_the_keyboard_reaches_everything_and_first_a_way_past_the_head(browser, pages):
    browser.show(pages["judged"], 1400)
    browser.run(OPEN)
    wanted = browser.run(
        "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility()).length"
    )
    reached = []
    mark = """(() => { const e = document.activeElement; if (e === document.body) return null;
      e.dataset.reached = 1; const box = e.getBoundingClientRect();
      return [e.className, e.textContent.trim().slice(0, 30), getComputedStyle(e).outlineStyle, box.left]; })()"""
    for _ in range(wanted + 1):
        browser.press("Tab", 9)
        reached.append(browser.run(mark))
        if reached[-1] is None:
            break
    assert reached[0][0] == "skip" and reached[0][3] >= 0
    assert browser.run("document.querySelectorAll('[data-reached]').length") == wanted
    assert {outline for _, _, outline, _ in filter(None, reached)} == {"solid"}


def test_every_row_has_a_head_every_graphic_words_and_every_scrolling_part_a_name(browser, pages):
    browser.show(pages["judged"], 1400)
    rows = "[...document.querySelectorAll('tbody tr:not(.axes)')].filter(r => !r.querySelector('th[scope=row], th[scope=rowgroup]')).length"
    assert browser.run(rows) == 0
    unnamed = "[...document.querySelectorAll('[role=region]')].filter(e => !e.ariaLabel).length"
    silent = "[...document.querySelectorAll('[role=img]')].filter(e => !e.querySelector('title') || !e.querySelector('desc')).length"
    assert browser.run(unnamed) == browser.run(silent) == 0
    assert browser.run("document.querySelectorAll('[role=img]').length") >= 1
    scrolling = (
        "[...document.querySelectorAll('body *')].filter(e => getComputedStyle(e).overflowX === 'auto')"
    )
    assert browser.run(f"{scrolling}.length") > 3
    assert browser.run(f"{scrolling}.filter(e => e.tabIndex !== 0 || !e.ariaLabel).length") == 0
    silent = "[...document.querySelectorAll('svg')].filter(e => !e.closest('[aria-hidden=true], [role=img]')).length"
    assert browser.run(silent) == 0
    assert (
        browser.run("document.documentElement.lang + document.querySelectorAll('main, h1').length") == "en2"
    )


def test_a_link_to_a_run_opens_the_part_that_holds_it(browser, pages):
    browser.show(pages["judged"], 1400)
    browser.run("document.querySelector('td a[href^=\"#table1-\"]').click()")
    browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    shown = browser.run("document.querySelector(location.hash).checkVisibility() && location.hash")
    assert shown.startswith("#table1-")


def test_a_page_is_small(pages):
    for path in pages.values():
        text = path.read_text()
        without = text
        while '<div class="drawn"' in without:
            start = without.index('<div class="drawn"')
            without = without[:start] + without[without.index("</svg>", start) + 6 :]
        assert len(without.encode()) < 500_000 and len(text.encode()) < 2_000_000
