"""Folders for the Hugging Face Hub: find and load policies, package a run, upload the result.

Loading executes no code: a policy is safetensors and JSON with a manifest of hashes, the model
card is never parsed, and symbolic links are refused. Uploading happens only on request
(`dna push`), with the token that `hf auth login` stored; this module never reads it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common import json_lines
from dna.common.errors import BadInput, DnaError, MissingExtra, StorageFailure
from dna.common.storage import (
    make_folder,
    read_json,
    write,
    write_folder,
    write_json,
)
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy, read_policy

#: Every file that a package may hold; nothing else in its folder is uploaded.
FILES = (
    "README.md",
    "config.json",
    "eval.json",
    "metrics.json",
    "replay.mp4",
    "policy/manifest.json",
    "policy/policy.json",
    "policy/policy.safetensors",
)


def find(text: str | Path) -> RunFolder:
    """Return the folder of a run, of a downloaded package or of an imported policy."""
    folder = RunFolder(Path(text))
    if folder.exists or (folder.policy / "manifest.json").is_file():
        return folder
    raise BadInput(f"{text}: no run here (no config.json) and no policy; `dna train` makes one")


def load(folder: str | Path) -> SavedPolicy:
    """Load the policy of such a folder; every file is checked against its hash."""
    found = find(folder)
    if not (found.policy / "manifest.json").is_file():
        raise BadInput(f"{folder}: has no policy; is the run finished?")
    return load_policy(found.policy)


# ── Packaging ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Packing:
    """How to evaluate the policy of a package and record a video of it."""

    episodes: int = 100
    seed: int = 0
    deterministic: bool = False
    allow_import: bool = False
    film: bool = True
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Packed:
    """The package that was written."""

    folder: Path
    summary: Mapping[str, float | int]
    notes: tuple[str, ...]  # what is missing from it, and why


def package(run: str | Path, out: Path, how: Packing | None = None) -> Packed:
    """Write a package of a run to `out`, which must be new or empty.

    It holds the model card, settings, policy, evaluation, end of the training log and a video.
    """
    how = how or Packing()
    source = find(run)
    policy = load(run)
    _check_free(out)
    config = _config(source)  # a bad one is refused before episodes are played
    evaluation = _evaluate(policy, how)
    make_folder(out)
    write_folder(out / "policy", read_policy(source.policy))
    files = ["policy/", "eval.json"]
    notes = []
    if config is not None:
        write_json(out / "config.json", config)
        files.append("config.json")
    write_json(out / "eval.json", evaluation)
    if metrics := _metrics(source):
        write_json(out / "metrics.json", metrics)
        files.append("metrics.json")
    try:
        write(out / "replay.mp4", _film(policy, how))
        files.append("replay.mp4")
    except DnaError as error:
        notes.append(f"no replay.mp4: {error}")
    # Last: a folder that has a card is complete.
    name = out.resolve().name or "policy"
    write(out / "README.md", card(name, policy, evaluation, files).encode())
    return Packed(out, evaluation["policy"], tuple(notes))


def _check_free(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadInput(f"{out}: is not a folder; choose another")
    if out.is_dir() and any(out.iterdir()):
        raise BadInput(f"{out}: is not empty; choose another folder")


def _config(source: RunFolder) -> dict[str, Any] | None:
    if not source.exists:
        return None  # an imported policy has no run
    source.read()
    tree: dict[str, Any] = read_json(source.path / "config.json")
    return tree


def _evaluate(policy: SavedPolicy, how: Packing) -> dict[str, Any]:
    from dna.evaluation.evaluate import Playing, evaluate

    playing = Playing(allow_import=how.allow_import)
    if how.progress is not None:
        playing = Playing(allow_import=how.allow_import, progress=how.progress)
    found = evaluate(
        policy,
        policy.env,
        episodes=how.episodes,
        seed=how.seed,
        deterministic=how.deterministic,
        how=playing,
    )
    return {
        "seed": how.seed,
        "deterministic": how.deterministic,
        "policy": found.summary(),
    }


def _metrics(source: RunFolder) -> dict[str, Any]:
    """Return the last row of the training log and the best score in it."""
    path = source.path / "metrics.jsonl"
    if not path.is_file():
        summary = source.path / "metrics.json"  # of a package
        tree: Any = read_json(summary) if summary.is_file() else {}
        return tree if isinstance(tree, dict) else {}
    metrics: dict[str, Any] = {}
    best = None
    for number, row in enumerate(json_lines.rows(path, "score"), start=1):
        metrics = {"iterations": number, "last": row}
        if row["score"] is not None:
            best = row["score"] if best is None else max(best, row["score"])
    return metrics if best is None else metrics | {"best_score": best}


def _film(policy: SavedPolicy, how: Packing) -> bytes:
    if not how.film:
        raise BadInput("not requested")
    from dna.evaluation.film import Film, mp4

    film = Film(policy, how.seed, 0, how.deterministic, how.allow_import)
    return mp4(film.frames(), film.fps)


# ── The model card ────────────────────────────────────────────────────────────────────────

#: What each file of a package is, as the card lists them.
CONTENT = {
    "policy/": "the policy: `policy.safetensors`, `policy.json`, and their hashes",
    "config.json": "all settings and the seed of the run",
    "eval.json": "the evaluation above",
    "metrics.json": "the end of the training log",
    "replay.mp4": "one episode",
}


def card(
    name: str, policy: SavedPolicy, evaluation: Mapping[str, Any], files: list[str]
) -> str:
    """Return README.md with the metadata that the hub reads.

    Its YAML is written value by value as JSON, which is YAML too: no environment name can break
    out of its quotes.
    """
    score = evaluation["policy"]
    env = policy.env.id or "a custom environment"
    algorithm = str(policy.about.get("algorithm", "unknown"))
    actions = "most likely actions" if evaluation["deterministic"] else "sampled actions"
    lines = [
        "---",
        *_metadata(name, env, algorithm, score),
        "---",
        "",
        f"# {_plain(algorithm.upper())} on {_plain(env)}",
        "",
        f"A policy trained with {_plain(algorithm.upper())} by "
        "ppo-dna (*DNA: Proximal Policy Optimization with a Dual Network Architecture*).",
        "",
        "| environment | episodes | score | actions | seed of the evaluation |",
        "|---|--:|--:|---|--:|",
        f"| {_plain(env)} | {score['episodes']} | {score['mean']:.2f} ± {score['std']:.2f} "
        f"| {actions} | {evaluation['seed']} |",
        "",
        *_training(policy),
        "## Use",
        "",
        "```console",
        f"hf download USER/{name} --local-dir {name}",
        f"dna eval {name} --episodes 100",
        "```",
        "",
        "```python",
        "from dna.hub import load",
        "",
        f"policy = load({json.dumps(name)})",
        "```",
        "",
        "Loading runs no code: the weights are safetensors, everything else is JSON.",
        "",
        "## Files",
        "",
        *(f"* `{file}`: {what}" for file, what in CONTENT.items() if file in files),
        "",
    ]
    return "\n".join(lines)


def _metadata(
    name: str, env: str, algorithm: str, score: Mapping[str, float | int]
) -> list[str]:
    """Return the front matter of the hub's reinforcement-learning cards."""
    metric = {
        "type": "mean_reward",
        "name": "mean_reward",
        "value": f"{score['mean']:.2f} +/- {score['std']:.2f}",
        "verified": False,
    }
    episodes = {"type": "episodes", "name": "episodes", "value": score["episodes"]}
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": env, "type": env},
        "metrics": [metric, episodes],
    }
    tree: dict[str, Any] = {
        "library_name": "ppo-dna",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", algorithm, env],
        "model-index": [{"name": name, "results": [result]}],
    }
    return [f"{key}: {json.dumps(value)}" for key, value in tree.items()]


def _training(policy: SavedPolicy) -> list[str]:
    facts = []
    if isinstance(policy.about.get("interactions"), int):
        facts.append(f"{policy.about['interactions']:,} interactions")
    if isinstance(policy.about.get("seed"), int):
        facts.append(f"seed {policy.about['seed']}")
    return [f"Trained for {', '.join(facts)}.", ""] if facts else []


def _plain(text: str) -> str:
    """Return one line without characters that Markdown interprets."""
    return "".join(c if c.isalnum() or c in " /.-_:+" else "?" for c in text)[:120]


# ── Uploading ─────────────────────────────────────────────────────────────────────────────

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def check_repository(name: str) -> None:
    """Refuse anything but USER/NAME."""
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise BadInput(f"{name[:60]!r}: name a repository as USER/NAME")


def hub_library() -> Any:
    """Import huggingface_hub, or name the extra that installs it."""
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("the Hugging Face Hub", "hub") from None
    return huggingface_hub


def push(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload a package and return its address."""
    check_repository(repository)
    library = hub_library()
    files = [name for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    for name in ("policy", *files):
        if (folder / name).is_symlink():
            raise StorageFailure(f"{folder / name}: is a link, and links are not uploaded")
    if not all((folder / name).is_file() for name in ("README.md", "policy/manifest.json")):
        raise BadInput(f"{folder}: not ready; make it with `dna export RUN --format hub`")
    load(folder)  # what is uploaded must be readable
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
    except Exception as error:  # the library's errors: network, hub, missing login
        raise StorageFailure(f"{repository}: {_reason(error)}") from error
    return f"{getattr(api, 'endpoint', 'https://huggingface.co')}/{repository}"


def _check_evaluation(path: Path) -> None:
    """Refuse an evaluation by `dna eval`: it is not the card's and names local folders."""
    tree = read_json(path) if path.is_file() else {}
    if not isinstance(tree, dict) or "run" in tree:
        raise BadInput(f"{path}: written by a later `dna eval`, not the card's; delete it")


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
        return "the hub does not let you write there; log in with `hf auth login`"
    return f"not uploaded ({type(error).__name__}: {' '.join(str(error).split())[:140]})"
