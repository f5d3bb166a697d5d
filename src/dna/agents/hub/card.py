"""The model card: README.md with the metadata that the hub reads.

Its YAML is written value by value as JSON, which is YAML too: no name of an environment can
break out of its quotes.
"""

import json
from collections.abc import Mapping
from typing import Any

from dna.runs.policy import SavedPolicy

#: What each file of the folder is, as the card lists them.
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
    """The whole README.md."""
    score, env = evaluation["policy"], policy.env.id or "an environment of its own"
    algorithm = str(policy.about.get("algorithm", "unknown"))
    how = "most likely actions" if evaluation["deterministic"] else "sampled actions"
    listed = [f"* `{n}`: {what}" for n, what in CONTENT.items() if n in files]
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
        f"| {how} | {evaluation['seed']} |",
        "",
        *_trained(policy),
        *_use(name),
        "## Files",
        "",
        *listed,
        "",
    ]
    return "\n".join(lines)


def _use(name: str) -> list[str]:
    return [
        "## Use",
        "",
        "```console",
        f"hf download USER/{name} --local-dir {name}",
        f"dna eval {name} --episodes 100",
        "```",
        "",
        "```python",
        "from dna.agents.hub import load",
        "",
        f"policy = load({json.dumps(name)})",
        "```",
        "",
        "Loading runs no code: the weights are safetensors, everything else is JSON.",
        "",
    ]


def _metadata(
    name: str, env: str, algorithm: str, score: Mapping[str, float | int]
) -> list[str]:
    """As the hub's reinforcement-learning cards have it."""
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {
        "type": "mean_reward",
        "name": "mean_reward",
        "value": f"{score['mean']:.2f} +/- {score['std']:.2f}",
        "verified": False,
    }
    episodes = {"type": "episodes", "name": "episodes", "value": score["episodes"]}
    result = {
        "task": task,
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


def _trained(policy: SavedPolicy) -> list[str]:
    about = policy.about
    said = []
    if isinstance(about.get("interactions"), int):
        said.append(f"{about['interactions']:,} interactions")
    if isinstance(about.get("seed"), int):
        said.append(f"seed {about['seed']}")
    return [f"Trained for {', '.join(said)}.", ""] if said else []


def _plain(text: str) -> str:
    """One line of Markdown that is only text."""
    return "".join(c if c.isalnum() or c in " /.-_:+" else "?" for c in text)[:120]
