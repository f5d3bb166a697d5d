"""A browser, its tabs, and a report to open in them."""

import pytest
from tabs import ARGUMENTS, CHROMIUM, Tab

from dna.cli import main


@pytest.fixture(scope="module")
def browser():
    # Here, so that tests without a browser need no Playwright.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def tab(browser):
    made = []

    def make(width=1280, theme="light", **options):
        made.append(Tab(browser, width, theme, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()


@pytest.fixture(scope="session")
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
