"""Who may import whom: the layers of docs/architecture.md, read from that document.

A room (a package directly under `dna`) imports only rooms of layers below its own, and the
modules of a room do not import each other in a circle. Beside it stand the rules that fall out
of the layers, and the one home of every optional library.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dna"
FILES = sorted(SOURCE.rglob("*.py"))
#: Library → the only modules that may import it.
OWNERS = {
    "typer": {"cli"},
    "rich": {"cli"},
    "tensorboard": {"runs/trackers"},
    "torch.utils.tensorboard": {"runs/trackers"},
    "wandb": {"runs/trackers"},
    "trackio": {"runs/trackers"},
    "gymnasium": {"envs", "evaluation/evaluate", "cli"},
    "matplotlib": {"evaluation/plots", "paper/figures"},
    "av": {"evaluation/film"},
    "torch.distributed": {"distributed/world"},
    "ray": {"runs/sweeps/ray_cluster"},
    "optuna": {"runs/sweeps/search"},
    "onnx": {"evaluation/export"},
    "onnxruntime": {"evaluation/export"},
    "onnxscript": {"evaluation/export"},
    "torch.onnx": {"evaluation/export"},
    "huggingface_hub": {"agents/hub"},
    "PIL": {"evaluation/film"},
    "filelock": {"common/lock"},
    # Modules that Windows does not have.
    "fcntl": {"common/lock"},
    "resource": {"cli/bench/serve"},
    **{name: set[str]() for name in ("grp", "pty", "pwd", "syslog", "termios", "tty")},
}
#: Public names of modules in rooms; they import what they name and nothing else.
ALIASES = {"callbacks", "hub", "noise_scale", "phases"}


#: What a module of `algorithm` has no business with: files, locks, signals and processes.
NOT_FOR_ALGORITHM = {"storage", "syscalls", "append_log", "lock", "process"}


def name_of(path: Path) -> str:
    """src/dna/envs/gym.py → envs/gym; src/dna/envs/__init__.py → envs."""
    return path.relative_to(SOURCE).with_suffix("").as_posix().removesuffix("/__init__")


def room_of(path: Path) -> str:
    return name_of(path).split("/")[0]


def imports(path: Path, *, top_level: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layers() -> dict[str, int]:
    """The line of `[a b] < [c]` in the architecture document: room → height."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```layers\n(.*?)```", text, re.DOTALL)
    assert block, "docs/architecture.md has no ```layers block"
    groups = re.findall(r"\[([^\]]*)\]", block.group(1))
    return {name: height for height, group in enumerate(groups) for name in group.split()}


def test_the_document_lists_exactly_the_rooms_there_are() -> None:
    present = {room_of(path) for path in FILES} - {".", "__init__", "__main__"} - ALIASES
    assert set(layers()) == present


def test_a_room_imports_only_rooms_below() -> None:
    height = layers()
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in FILES
        if (own := room_of(path)) in height
        for name in imports(path)
        if name.startswith("dna.")
        and (other := name.split(".")[1]) != own
        and (other in ALIASES or (other in height and height[other] >= height[own]))
    ]
    assert wrong == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    names = {"dna." + name_of(path).replace("/", "."): path for path in FILES}
    below = {
        name: {other for other in imports(path, top_level=True) if other in names}
        for name, path in names.items()
    }
    for name, others in below.items():  # `from dna.room import module` asks for the module
        below[name] = {o for o in others if not any(x.startswith(o + ".") for x in others)}
        below[name].discard(name)
    while free := [name for name, others in below.items() if not others & below.keys()]:
        for name in free:
            del below[name]
    assert below == {}, "these wait for each other"


def test_a_library_is_imported_only_where_it_belongs() -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in FILES
        for name in imports(path)
        for library, owners in OWNERS.items()
        if name == library or name.startswith(library + ".")
        if not any(name_of(path) == o or name_of(path).startswith(o + "/") for o in owners)
    ]
    assert wrong == []


def test_settings_and_the_common_room_import_neither_torch_nor_environments() -> None:
    banned = {"common": {"torch", "gymnasium"}, "config": {"torch", "gymnasium", "numpy"}}
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in FILES
        if name_of(path) != "common/tensor_files"  # tensors as files: nothing else loads it
        for name in imports(path, top_level=True)
        if name.split(".")[0] in banned.get(room_of(path), set())
    ]
    assert wrong == []


def test_the_algorithm_knows_nothing_of_files_and_signals() -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in FILES
        if room_of(path) == "algorithm"
        for name in imports(path)
        if name.startswith("dna.common.") and name.split(".")[2] in NOT_FOR_ALGORITHM
    ]
    assert wrong == []


def test_only_storage_opens_files_for_writing() -> None:
    writers = re.compile(
        r"write_bytes|write_text|\.open\(\s*[\"'][wax]|open\([^)]*[\"'][wax]b?[\"']"
    )
    offenders = [
        name_of(path)
        for path in FILES
        if writers.search(path.read_text())
        and name_of(path) not in ("common/storage", "evaluation/film")  # film: into memory
    ]
    assert offenders == []


def test_every_module_and_public_function_says_what_it_is_for() -> None:
    silent = []
    for path in FILES:
        tree = ast.parse(path.read_text())
        nodes = [tree, *(n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))]
        for node in nodes:
            name = getattr(node, "name", "module")
            if not name.startswith("_") and not ast.get_docstring(node):
                silent.append(f"{name_of(path)}: {name}")
    assert silent == []
