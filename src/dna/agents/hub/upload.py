"""Uploading to the Hugging Face Hub: the only module that talks to it, on request alone.

The token is huggingface_hub's own (`hf auth login`); it is neither read nor kept here.
"""

import re
from pathlib import Path
from typing import Any

from dna.agents.hub import load
from dna.agents.hub.package import FILES
from dna.common.errors import BadInput, MissingExtra, StorageFailure
from dna.common.storage import read_json

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def check_name(repository: str) -> None:
    """USER/NAME, before anything is done."""
    if not _NAME.fullmatch(repository) or ".." in repository or "--" in repository:
        raise BadInput(f"{repository[:60]!r}: name a repository as USER/NAME")


def check_installed() -> Any:
    """huggingface_hub, or one line that names the extra."""
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("the Hugging Face Hub", "hub") from None
    return huggingface_hub


def is_package(folder: Path) -> bool:
    """Whether `dna export --format hub` made it: it has a card and a policy."""
    return (folder / "README.md").is_file() and (folder / "policy" / "manifest.json").is_file()


def push(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload a folder that is ready; returns its address."""
    check_name(repository)
    library = check_installed()
    files = [name for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    for name in ("policy", *files):
        if (folder / name).is_symlink():
            raise StorageFailure(f"{folder / name}: is a link; what it leads to stays here")
    if not is_package(folder):
        raise BadInput(f"{folder}: not ready; make it with `dna export RUN --format hub`")
    load(folder)  # what is uploaded can be read again
    _check_evaluation(folder / "eval.json")
    try:
        api = library.HfApi(library_name="ppo-dna")
        api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=files,
            commit_message="Upload a policy with ppo-dna",
        )
    except Exception as error:  # of the network, of the hub, of a missing login
        raise StorageFailure(f"{repository}: {_reason(error)}") from error
    return f"{getattr(api, 'endpoint', 'https://huggingface.co')}/{repository}"


def _check_evaluation(path: Path) -> None:
    """`dna eval` writes its own, of other episodes than the card's, with the folder's path."""
    tree = read_json(path) if path.is_file() else {}
    if not isinstance(tree, dict) or "run" in tree:
        raise BadInput(f"{path}: is of a later `dna eval`, not the card's; delete it")


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
        return "the hub does not let you write there; log in with `hf auth login`"
    return f"not uploaded ({type(error).__name__}: {' '.join(str(error).split())[:140]})"
