"""Policies that travel: a folder for the Hugging Face Hub, made here and read here.

Reading one runs no code: the policy is safetensors and JSON under a manifest of hashes, the
model card is never parsed, and a link is refused wherever it leads. Uploading is a command of
its own (`dna push`) and never happens by itself.
"""

from pathlib import Path

from dna.common.errors import BadInput
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy

__all__ = ["find", "load"]


def find(text: str | Path) -> RunFolder:
    """A run, a folder from the hub or an imported policy: what has, or may get, a policy."""
    folder = RunFolder(Path(text))
    if folder.exists or (folder.policy / "manifest.json").is_file():
        return folder
    raise BadInput(f"{text}: no run here (no config.json) and no policy; `dna train` makes one")


def load(folder: str | Path) -> SavedPolicy:
    """The policy of such a folder, each file checked against its hash."""
    found = find(folder)
    if not (found.policy / "manifest.json").is_file():
        raise BadInput(f"{folder}: has no policy; is the run finished?")
    return load_policy(found.policy)
