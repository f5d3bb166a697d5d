"""The pictures of docs/report.md, and what `make screenshots` does to them."""

import importlib.util
import io
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

ROOT = Path(__file__).parent.parent.parent
NAMES = [
    f"{kind}-{width}-{theme}.png"
    for kind in ("report", "watch", "experiment")
    for width in (1280, 390)
    for theme in ("light", "dark")
]


@pytest.fixture(scope="module")
def screenshots():
    sys.path.insert(0, str(ROOT / "benchmarks"))  # it takes names from its neighbor
    try:
        path = ROOT / "benchmarks" / "screenshots.py"
        spec = importlib.util.spec_from_file_location("screenshots", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


@pytest.mark.parametrize("name", NAMES)
def test_every_screen_has_a_small_picture_that_the_document_shows(name):
    path = ROOT / "docs" / "img" / name
    picture = Image.open(path)
    assert picture.mode == "P"
    assert len(picture.getcolors()) <= 128
    assert path.stat().st_size < 150_000
    assert picture.width >= (1280 if "1280" in name else 2 * 390)  # a phone's in strips
    assert f"(img/{name})" in (ROOT / "docs" / "report.md").read_text()


def test_a_picture_is_packed_without_changing_grounds_and_chips(screenshots):
    picture = Image.linear_gradient("L").resize((600, 400)).convert("RGB")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, 600, 200), fill="#f4f5f7")
    draw.rectangle((10, 10, 60, 40), fill="#e3f4ec")
    few = Image.open(io.BytesIO(screenshots.packed(picture)))
    assert len(few.getcolors()) <= 128
    few = few.convert("RGB")
    assert few.size == picture.size
    for place in ((300, 100), (30, 30)):
        assert few.getpixel(place) == picture.getpixel(place)


def test_strips_hold_the_whole_page_and_are_cut_where_they_may(screenshots):
    whole = Image.new("RGB", (390, 5000), "white")
    for top in range(0, 5000, 250):
        ImageDraw.Draw(whole).line((0, top, 390, top), fill=(top // 250 + 1, 0, 0))
    made = screenshots.strips(whole, list(range(0, 5000, 250)))
    assert made.height < 2500
    assert made.width == 3 * 390 + 2 * 24
    found = {color for _, color in made.getcolors() if color != (255, 255, 255)}
    assert len(found) == 20
    short = screenshots.strips(whole.crop((0, 0, 390, 900)), [250, 500])
    assert short.size == (390, 900)
