"""An experiment's page in a real browser: claims, figures, tables, curves, what failed."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from tabs import NEEDS_CHROMIUM, SCREENS, boxes

from dna.cli import main

#: In one process: they share the browser and a report of two trained runs.
pytestmark = [NEEDS_CHROMIUM, pytest.mark.xdist_group("browser")]
ROOT = Path(__file__).parent.parent.parent
#: The toy problem's figure, and the widest and the narrowest of all experiments, in pixels.
FIGURES = {"figure.png": 900, "games.png": 1760, "game.png": 220}
WORDS = "not finite: policy/loss in iteration 12; `dna resume runs/3f2a9c01d4e5` goes on"


def png(width):
    buffer = io.BytesIO()
    Image.new("RGB", (width, 340), "white").save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def experiment(report, tmp_path_factory):
    """The page of the toy problem as it was kept, with runs and failures beside."""
    folder = tmp_path_factory.mktemp("experiment")
    tree = json.loads((ROOT / "results" / "fig01-small.json").read_text())
    for name, rows in tree["rows"].items():
        (folder / name).write_text(rows)
    for name, width in FIGURES.items():
        (folder / name).write_bytes(png(width))
    about = {"study": "main", "arm": "DNA", "env": "CartPole-v1", "digest": "3f2a9c01d4e5"}
    runs = report.parent / "runs"
    tree["runs"] = [
        about | {"seed": seed, "score": 20.5, "folder": str(runs / f"seed{seed}")}
        for seed in (0, 1)
    ]
    tree["failed"] = [f"PPO in CartPole-v1, seed {seed}: {WORDS}" for seed in (2, 3)]
    tree["figures"] = list(FIGURES)
    (folder / "experiment.json").write_text(json.dumps(tree))
    out = folder / "report.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_an_experiment_on_every_screen(tab, experiment, width, theme):
    shown = tab(width, theme)
    shown.page.goto(experiment.as_uri())
    for summary in shown.page.locator("summary").all():
        summary.click()
    shown.check(width, experiment.as_uri(), plots=1)
    assert shown.page.locator(".verdicts tbody tr").count() == 5
    ends = [box["x"] + box["width"] for box in boxes(shown.page.locator(".verdicts .chip"))]
    assert max(ends) < width  # none has to be scrolled to
    assert shown.page.locator(".failed li:visible").count() == 2
    assert shown.page.locator("#runs code:visible").count() == 2


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_figures_can_be_read_on_every_screen(tab, experiment, width):
    shown = tab(width)
    shown.page.goto(experiment.as_uri())
    images = shown.page.locator(".picture img")
    room = boxes(shown.page.locator(".picture"))[0]["width"]
    wide = {name: box["width"] for name, box in zip(FIGURES, boxes(images), strict=True)}
    assert wide["game.png"] == 220  # not blown up
    if width == 1280:
        assert wide["figure.png"] == pytest.approx(room, abs=10)
        assert wide["games.png"] == pytest.approx(room, abs=10)
    else:  # as drawn or larger, and scrolled by itself
        assert wide["figure.png"] >= 900
        assert wide["games.png"] == 1760
        frame = shown.page.locator(".picture .scroll").nth(1)
        assert frame.evaluate("f => (f.scrollLeft = 9999) && f.scrollLeft") > 500
