"""Documents that cannot rot: their Python runs, their commands parse, their links lead on."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from dna.cli import app, main

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(2))
def test_the_python_of_the_readme_runs(number, capsys):
    code = blocks(ROOT / "README.md", "python")
    assert len(code) == 2
    names = {}
    exec(compile(code[number], f"README.md, block {number}", "exec"), names)
    assert "config" in names or names["DNA"].algorithm == "dna"


@pytest.mark.parametrize(
    "name", ["own-environments.md", "api.md", "migrate-from-sb3.md", "export.md"]
)
def test_the_python_of_a_document_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    code = blocks(ROOT / "docs" / name, "python")
    for number, block in enumerate(code):
        exec(compile(block, f"{name}, block {number}", "exec"), names)
    assert code


def commands():
    for path in DOCUMENTS:
        for block in blocks(path, "console"):
            for line in block.splitlines():
                if line.startswith("dna "):
                    yield line


@pytest.mark.parametrize("verb", sorted({line.split()[1] for line in commands()}))
def test_a_command_in_a_document_is_one_that_exists(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert verb in verbs
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    for line in sorted(line for line in set(commands()) if line.split()[1] == verb):
        words = shlex.split(line, comments=True)[1:]
        if verb == "train" and ":" not in words[1]:
            assert main([*words, "--dry-run"]) == 0, line
        elif verb in ("show", "list"):
            assert main(words) == 0, line
        else:
            options = [word for word in words if word.startswith("--")]
            assert all(option in text for option in options), line


def test_relative_links_lead_somewhere():
    for path in DOCUMENTS:
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
        missing = [
            link for link in links if "://" not in link and not (path.parent / link).exists()
        ]
        assert missing == [], path.name


def test_measured_tables_are_those_of_the_result_files():
    path = ROOT / "benchmarks/tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    made = tables.blocks(ROOT / "benchmarks/results")
    texts = {document: (ROOT / document).read_text() for document in tables.DOCUMENTS}
    for document, text in texts.items():
        assert tables.updated(text, made) == text, f"{document}: run benchmarks/tables.py"
    together = "".join(texts.values())
    assert [name for name in made if f"<!-- {name} -->" not in together] == []
