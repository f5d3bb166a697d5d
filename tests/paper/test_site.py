"""The documentation's site: it builds without a warning, and fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dna.cli import app

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""
    return folder


def test_every_command_has_a_place_with_an_example(site):
    text = (site / "commands.html").read_text()
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert len(verbs) > 10
    assert [v for v in verbs if f'id="dna-{v}"' not in text] == []
    plain = re.sub(r"<[^>]+>", "", text)
    assert [v for v in verbs if plain.count(f"dna {v} ") < 2] == []  # usage and an example


def test_pages_fetch_nothing(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = re.findall(r'(?:src|href)="(https?://[^"]+)"', page.read_text())
        links = re.findall(r'<a [^>]*href="(https?://[^"]+)"', page.read_text())
        assert set(fetched) <= set(links), page.name


def test_every_public_name_is_in_the_reference(site):
    import dna

    text = (site / "reference.html").read_text()
    missing = [n for n in dna.__all__ if not re.search(rf'id="dna\.[\w.]*\b{n}"', text)]
    assert missing == []
