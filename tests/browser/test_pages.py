"""The report and the live page in a real browser: Debian's Chromium, headless."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from dna.cli import main

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists() and "CI" not in os.environ,
    reason=f"no {CHROMIUM}: `make browser` installs it where it may",
)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Not even a name is looked up.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
SCREENS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]

#: Texts whose contrast with what lies behind them is below 4.5.
FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *:not(script):not(title)")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const color = node.matches("svg text") ? style.fill : style.color;
    const [a, b] = [light(parse(color)), light(behind(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${node.tagName} ${node.textContent}`);
  }
  return faint;
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield found
        found.close()


class Tab:
    """A page that remembers what went wrong and what it asked for."""

    def __init__(self, browser, width, theme, **options):
        size = {"width": width, "height": 844}
        self.context = browser.new_context(viewport=size, color_scheme=theme, **options)
        self.page = self.context.new_page()
        self.errors, self.asked = [], []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def check(self, width, *starts):
        """No error, nothing asked of anybody else, nothing beside the screen, all readable."""
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith((*starts, "data:"))] == []
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        assert self.page.evaluate(FAINT) == []
        plots = self.page.locator("svg.plot:visible")
        assert plots.count() >= 5
        assert all(box["width"] > 100 and box["height"] > 100 for box in boxes(plots))


def boxes(locator):
    return [one.bounding_box() for one in locator.all()]


@pytest.fixture
def tab(browser):
    made = []

    def make(width=1280, theme="light", **options):
        made.append(Tab(browser, width, theme, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report on two seeds, with a film."""
    folder = tmp_path_factory.mktemp("browser")
    words = ["train", "CartPole-v1", "--interactions", "6000", "--noise", "--quiet"]
    for seed in ("0", "1"):
        run = str(folder / "runs" / f"seed{seed}")
        assert main([*words, "--seed", seed, "--out", run, "noise.every=1"]) == 0
    assert main(["eval", str(folder / "runs" / "seed0"), "--episodes", "2", "--random"]) == 0
    assert main(["record", str(folder / "runs" / "seed0")]) == 0
    out = folder / "report.html"
    assert main(["report", str(folder / "runs"), "--out", str(out)]) == 0
    return out


def until(page, read, good, seconds=60):
    """What is read once it is good; the policy forbids Playwright's own way to wait for it."""
    end = time.monotonic() + seconds
    while not good(value := read()):
        assert time.monotonic() < end, f"waited too long, {value!r} at last"
        page.wait_for_timeout(100)
    return value


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_the_report_on_every_screen(tab, report, width, theme):
    shown = tab(width, theme)
    shown.page.goto(report.as_uri())
    for summary in shown.page.locator("summary").all():
        summary.click()
    shown.check(width, report.as_uri())
    ground = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(part) for part in re.findall(r"\d+", ground)[:3]) > 384
    assert bright == (theme == "light")
    assert shown.page.locator("video").evaluate("v => v.error === null")


def test_the_report_is_whole_without_scripts(tab, report):
    shown = tab(390, java_script_enabled=False)
    shown.page.goto(report.as_uri())
    assert shown.page.locator("svg.plot:visible").count() >= 10
    assert shown.page.locator(".legend b").first.inner_text()


def test_a_value_is_read_out_beside_the_pointer_and_under_the_keys(tab, report):
    shown = tab()
    shown.page.goto(report.as_uri())
    plot = shown.page.locator("svg.plot").first
    plot.hover()
    readout = shown.page.locator(".reading .readout")
    assert "DNA" in readout.inner_text()
    final = shown.page.locator(".legend b").first.inner_text()
    plot.focus()
    for _ in range(60):
        shown.page.keyboard.press("ArrowRight")
    assert float(readout.locator("b").first.inner_text()) == pytest.approx(
        float(final), rel=0.01
    )
    assert shown.errors == []


def test_the_policy_stops_what_a_page_might_try(tab, report):
    shown = tab()
    shown.page.goto(report.as_uri())
    refused = shown.page.evaluate("fetch('http://127.0.0.1:9/').then(() => false, () => true)")
    assert refused
    ran = shown.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.foreign = true";
          document.body.append(script);
          return window.foreign === true;
        }"""
    )
    assert not ran
    assert any("Content Security Policy" in error for error in shown.errors)


class Process:
    """`dna …` beside the test."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dna", *words], stdout=subprocess.PIPE, text=True
        )

    def stop(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout=60)
        self.process.stdout.close()
        return self.process.returncode


@pytest.fixture
def live(tmp_path):
    """(address, training): a run that is training, and being watched."""
    run = tmp_path / "run"
    words = ["train", "CartPole-v1", "--noise", "noise.every=2", "--quiet", "--out", str(run)]
    training = Process(*words, "--interactions", "10000000", "--compile", "off")
    log, end = run / "metrics.jsonl", time.monotonic() + 120
    while not (log.is_file() and log.stat().st_size) and time.monotonic() < end:
        time.sleep(0.1)
    watch = Process("watch", str(run))
    address = re.search(r"http://\S+", watch.process.stdout.readline()).group(0)
    yield address, training
    training.stop(signal.SIGKILL)
    assert watch.stop(signal.SIGINT) == 0


def test_the_live_page_follows_the_run_and_keeps_its_place(tab, live):
    address, training = live
    shown = tab()
    page = shown.page
    page.goto(address)
    page.wait_for_selector("svg.plot")
    assert page.locator("header .chip").inner_text() == "training"
    page.locator("#settings summary").first.click()
    page.evaluate("scrollTo({top: 700, behavior: 'instant'})")
    page.evaluate("window.settings_before = document.getElementById('settings')")
    before = page.evaluate("scrollY")
    tile = page.locator(".tile", has_text="interactions").first
    first, path = tile.inner_text(), page.locator(".plot path.mean").first.get_attribute("d")
    for _ in range(2):
        seen = first
        first = until(page, tile.inner_text, lambda text: text != seen)  # noqa: B023
    assert page.locator(".plot path.mean").first.get_attribute("d") != path
    assert page.evaluate("scrollY") == before
    assert page.locator("#settings details").first.get_attribute("open") is not None
    # What has not changed was not touched.
    assert page.evaluate("window.settings_before === document.getElementById('settings')")
    training.stop(signal.SIGTERM)
    page.wait_for_selector("header .chip.not-running", timeout=30_000)
    shown.check(1280, address)


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_the_live_page_on_every_screen(tab, report, width, theme):
    watch = Process("watch", str(report.parent / "runs"))
    address = re.search(r"http://\S+", watch.process.stdout.readline()).group(0)
    shown = tab(width, theme)
    shown.page.goto(address)
    said = shown.page.locator("#said")
    assert until(shown.page, said.text_content, bool) == "The run is finished."
    shown.check(width, address)
    assert watch.stop(signal.SIGINT) == 0


def test_when_watching_ends_the_page_says_so(tab, report):
    watch = Process("watch", str(report.parent / "runs" / "seed0"))
    address = re.search(r"http://\S+", watch.process.stdout.readline()).group(0)
    shown = tab(390)
    shown.page.goto(address)
    shown.page.wait_for_selector("svg.plot")
    assert watch.stop(signal.SIGINT) == 0
    shown.page.wait_for_selector(".said.lost", timeout=30_000)
    assert shown.page.locator("svg.plot:visible").count() >= 5
