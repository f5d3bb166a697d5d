"""Who may import whom: the layers of docs/architecture.md, read from that document.

A module imports only from layers below its own. Beside it stand the rules that fall out of
the layers, and the sizes that keep a file readable.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dna"
FILES = sorted(SOURCE.rglob("*.py"))
#: Library → the only modules that may import it.
OWNERS = {
    "typer": {"cli"},
    "rich": {"cli"},
    "tensorboard": {"dashboards"},
    "torch.utils.tensorboard": {"dashboards"},
    "wandb": {"dashboards"},
    "trackio": {"dashboards"},
    "gymnasium": {"envs", "evaluate", "doctor", "cli"},
    "matplotlib": {"plots", "figures"},
    "av": {"media"},
    "torch.distributed": {"world"},
    "ray": {"cluster"},
    "optuna": {"study"},
    "onnx": {"export"},
    "onnxruntime": {"export"},
    "onnxscript": {"export"},
    "torch.onnx": {"export"},
    "huggingface_hub": {"hub"},
    "PIL": {"chart", "media"},
}


def module_of(path: Path) -> str:
    """src/dna/envs/gym.py → envs; src/dna/config.py → config."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layers() -> dict[str, int]:
    """The line of `[a b] < [c]` in the architecture document: module → height."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```layers\n(.*?)```", text, re.DOTALL)
    assert block, "docs/architecture.md has no ```layers block"
    groups = re.findall(r"\[([^\]]*)\]", block.group(1))
    return {name: height for height, group in enumerate(groups) for name in group.split()}


def test_the_document_lists_exactly_the_modules_there_are() -> None:
    present = {module_of(path) for path in FILES} - {"__init__", "__main__"}
    assert set(layers()) == present


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    height = layers()
    own = module_of(path)
    if own in ("__init__", "__main__"):
        return
    for name in imports(path):
        if name.startswith("dna."):
            other = name.split(".")[1]
            if other in height and other != own:
                assert height[other] < height[own], f"{own} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_library_is_imported_only_where_it_belongs(path: Path) -> None:
    for name in imports(path):
        for library, owners in OWNERS.items():
            if name == library or name.startswith(library + "."):
                assert module_of(path) in owners, f"{path.name} must not import {library}"


@pytest.mark.parametrize("name", ["errors", "settings", "config", "tweak", "presets"])
def test_settings_import_neither_torch_nor_environments(name: str) -> None:
    paths = [path for path in FILES if module_of(path) == name]
    assert paths
    for path in paths:
        roots = {imported.split(".")[0] for imported in imports(path)}
        assert not roots & {"torch", "gymnasium", "numpy"}


def test_only_storage_opens_files_for_writing() -> None:
    writers = re.compile(
        r"write_bytes|write_text|\.open\(\s*[\"'][wax]|open\([^)]*[\"'][wax]b?[\"']"
    )
    offenders = [
        path.name
        for path in FILES
        if module_of(path) != "storage"
        and writers.search(path.read_text())
        # media writes into memory
        and module_of(path) != "media"
    ]
    assert offenders == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_short_and_explained(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= 250, "a file has at most 250 lines"
    assert ast.get_docstring(tree), "a module says what it is for"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 40, f"{node.name} has {length} lines"
