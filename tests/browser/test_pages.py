"""The report and the live page in a real browser: Debian's Chromium, headless."""

import re
import signal
import subprocess
import sys
import time

import pytest
from tabs import NEEDS_CHROMIUM, SCREENS

#: In one process: they share the browser and a report of two trained runs.
pytestmark = [NEEDS_CHROMIUM, pytest.mark.xdist_group("browser")]


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
    assert shown.page.locator("video").get_attribute("poster").startswith("data:image/png")


def test_on_a_phone_the_mean_of_an_evaluation_is_seen_without_scrolling(tab, report):
    shown = tab(390)
    shown.page.goto(report.as_uri())
    means = shown.page.locator("#evaluation tbody tr td:nth-child(2)")
    assert means.count() == 2
    for cell in means.all():
        float(cell.inner_text().replace(",", "").replace("−", "-"))
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= 390


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


@pytest.fixture(scope="module")
def watched(report):
    """The address of the live page of the report's runs."""
    watch = Process("watch", str(report.parent / "runs"))
    yield re.search(r"http://\S+", watch.process.stdout.readline()).group(0)
    assert watch.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_the_live_page_on_every_screen(tab, watched, width, theme):
    shown = tab(width, theme)
    shown.page.goto(watched)
    said = shown.page.locator("#status")
    assert until(shown.page, said.text_content, bool) == "The run is finished."
    shown.check(width, watched)


def test_when_watching_ends_the_page_says_so(tab, report):
    watch = Process("watch", str(report.parent / "runs" / "seed0"))
    address = re.search(r"http://\S+", watch.process.stdout.readline()).group(0)
    shown = tab(390)
    shown.page.goto(address)
    shown.page.wait_for_selector("svg.plot")
    assert watch.stop(signal.SIGINT) == 0
    shown.page.wait_for_selector(".status.lost", timeout=30_000)
    assert shown.page.locator("svg.plot:visible").count() >= 5
