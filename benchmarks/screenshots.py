"""Take screenshots of `dna report` and `dna watch` for docs/img, with Debian's Chromium.

`make screenshots` trains CartPole with `--noise` for a few minutes: three seeds for the report,
and one that is watched while it trains. The page of an experiment shows the toy problem, from
its results in results/. Each page is taken on a wide screen and on a phone, light and dark.
"""

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from results import IMAGES, KEPT, image, name_of

from dna.common.storage import write, write_json

CHROMIUM = "/usr/bin/chromium"
DNA = [sys.executable, "-m", "dna"]
TRAIN = [*DNA, "train", "CartPole-v1", "--noise", "noise.every=1", "--quiet"]
INTERACTIONS, SEEDS, LINES = 50_000, 3, 40
WIDE, PHONE = 1280, 390
#: Height of a column and width of the gap, when a phone's page is split into columns.
STRIP, BETWEEN = 2000, 24
#: Colors of a picture, and how many of them are its most frequent ones, unchanged.
COLORS, FLAT = 128, 32
#: Positions at which a phone's page may be split: above a section or a chart.
TOPS = """() => [...document.querySelectorAll(
  "section, .chart + .chart, .wide + .grid-of-charts, .picture + .picture")].map(
  (one) => Math.floor(one.getBoundingClientRect().top + scrollY - 6))"""


def main() -> None:
    """Train, then take all screenshots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--only", choices=("report", "watch", "experiment"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        root = Path(folder)
        for kind in ("report", "watch", "experiment"):
            if given.only in (None, kind):
                with ADDRESSES[kind](root) as address:
                    take(browser, address, kind, given.out)
        browser.close()


@contextmanager
def report(root: Path) -> Iterator[str]:
    """Provide the report of finished and evaluated seeds."""
    for seed in range(SEEDS):
        words = ["--interactions", str(INTERACTIONS), "--seed", str(seed)]
        call(*TRAIN, *words, "--out", str(root / "runs" / f"seed{seed}"))
    call(*DNA, "eval", str(root / "runs" / "seed0"), "--episodes", "20", "--random")
    call(*DNA, "report", str(root / "runs"), "--out", str(root / "report.html"))
    yield (root / "report.html").as_uri()


@contextmanager
def watch(root: Path) -> Iterator[str]:
    """Provide the live page of a training run, once it has data to show."""
    run = root / "watched"
    words = ["--interactions", str(4 * INTERACTIONS), "--out", str(run)]
    with process(*TRAIN, *words) as training:
        until(training, run, 1)
        with process(*DNA, "watch", str(run)) as watching:
            assert watching.stdout is not None
            found = re.search(r"http://\S+", watching.stdout.readline())
            if found is None:
                raise SystemExit("`dna watch` printed no address")
            until(training, run, LINES)
            yield found[0]


def until(training: "subprocess.Popen[str]", run: Path, lines: int) -> None:
    """Wait until the metrics of a run have this many lines."""
    log = run / "metrics.jsonl"
    while not (log.is_file() and log.read_bytes().count(b"\n") >= lines):
        if training.poll() is not None:
            raise SystemExit("the run ended before its page could be taken")
        time.sleep(0.2)


@contextmanager
def experiment(root: Path) -> Iterator[str]:
    """Provide the page of an experiment from its stored results."""
    tree = json.loads((KEPT / "fig01-small.json").read_text())
    folder = root / "experiment"
    for name, rows in tree.pop("rows").items():
        write(folder / name, rows.encode())
    for picture in tree["figures"]:
        write(folder / picture, (IMAGES / image(name_of(tree), picture)).read_bytes())
    write_json(folder / "experiment.json", tree)
    call(*DNA, "report", str(folder), "--out", str(root / "experiment.html"))
    yield (root / "experiment.html").as_uri()


ADDRESSES = {"report": report, "watch": watch, "experiment": experiment}


def call(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True)


@contextmanager
def process(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in the background for the duration of the context."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.terminate()


def take(browser: Browser, address: str, kind: str, out: Path) -> None:
    """Take one page at both widths, light and dark."""
    for width in (WIDE, PHONE):
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": 844},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(address)
            page.wait_for_selector("section")
            path = out / f"{kind}-{width}-{theme}.png"
            write(path, packed(shot(page, width)))
            print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", flush=True)
            context.close()


def shot(page: Page, width: int) -> Image.Image:
    """Return the page down to its gradient noise or its end; on a phone, in columns."""
    last = page.locator("#noise") if page.locator("#noise").count() else page.locator("main")
    box = last.bounding_box()
    assert box is not None
    end = int(box["y"] + box["height"]) + 12
    cuts = [top for top in sorted(page.evaluate(TOPS)) if 0 < top < end]
    whole = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    whole = whole.crop((0, 0, width, min(end, whole.height)))
    return strips(whole, cuts) if width == PHONE else whole


def packed(picture: Image.Image) -> bytes:
    """Encode as PNG with few colors; backgrounds and lines are exact, edges of text nearly."""
    red, green, blue = (np.asarray(band).astype(np.int64) for band in picture.split())
    pixels = red << 16 | green << 8 | blue
    found, where, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    colors = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    exact = colors[np.argsort(-counts)[:FLAT]]
    rest = picture.quantize(COLORS - FLAT, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
    others = np.array(rest.getpalette() or [], dtype=np.int64).reshape(-1, 3)
    palette = np.concatenate([exact, others])[:COLORS]
    nearest = np.argmin(((colors[:, None] - palette) ** 2).sum(axis=2), axis=1)
    few = Image.fromarray(nearest[where].reshape(pixels.shape).astype(np.uint8), "P")
    few.putpalette(palette.astype(np.uint8).tobytes())
    buffer = io.BytesIO()
    few.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def strips(whole: Image.Image, cuts: list[int]) -> Image.Image:
    """Split a tall picture into columns of about the same height."""
    height = whole.height / -(-whole.height // STRIP)
    places = [0]
    while cuts and whole.height - places[-1] > STRIP:
        wanted = places[-1] + height
        place = min(cuts, key=lambda cut: abs(cut - wanted))
        if place <= places[-1]:
            break
        places.append(place)
    parts = [whole.crop((0, a, whole.width, b)) for a, b in pairwise([*places, whole.height])]
    size = (whole.width + BETWEEN) * len(parts) - BETWEEN, max(part.height for part in parts)
    made = Image.new("RGB", size, whole.getpixel((0, 0)))
    for i, part in enumerate(parts):
        made.paste(part, (i * (whole.width + BETWEEN), 0))
    return made


if __name__ == "__main__":
    main()
