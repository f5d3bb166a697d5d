"""Reading, changing and naming configurations: `tweak` is the only way to change a setting.

A change is made on the JSON tree at a dotted path (phases are addressed by their name) and
the *whole* model is validated again, so a preset with an override is as safe as a preset.
"""

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError

from dna.common.errors import BadInput, UnknownKey
from dna.common.messages import elsewhere, nearest, one_line, quoted, shown
from dna.config.environments import Atari, Procgen, RepeatPenalty
from dna.config.phases import PHASES, Linear, Noise
from dna.config.run import Config, ObservationNorm, RewardNorm, WarmUp, json_tree

#: Settings that may be off (None): naming a key inside one turns it on with its defaults.
_OPTIONAL: dict[str, type[BaseModel]] = {
    "normalize_observation": ObservationNorm,
    "normalize_reward": RewardNorm,
    "warm_up": WarmUp,
    "repeat_penalty": RepeatPenalty,
    "noise": Noise,
    "atari": Atari,
    "procgen": Procgen,
    "learning_rate": Linear,
    "epsilon": Linear,
    "entropy_bonus": Linear,
}
#: Optional settings that configurations of the first version did not have.
_LATER = {"atari", "procgen", "repeat_penalty", "precision", "values", "noise", "first"}
#: Brackets in one value: a whole list of phases has far fewer.
MOST_BRACKETS = 100


def tweak(config: Config, **changes: Any) -> Config:
    """`tweak(DNA, **{"policy.sgd.epochs": 1})`: the configuration with these changes."""
    tree = json_tree(config)
    for path, value in changes.items():
        _check_value(path, value)
        if not _navigable(tree):
            break  # an earlier change broke the phases; validation says how
        _set(tree, path, deepcopy(value))  # a later change must not reach into what was given
    return from_tree(tree)


def without(config: Config, name: str) -> Config:
    """The configuration without the phase of that name (an ablation)."""
    tree = json_tree(config)
    _phase(tree, name)
    tree["phases"] = [phase for phase in tree["phases"] if phase["name"] != name]
    return from_tree(tree)


def at(config: Config, path: str) -> Any:
    """The value at a dotted path, as JSON."""
    node: Any = json_tree(config)
    words = path.split(".")
    if words[0] in _names(node):
        node, words = _phase(node, words[0]), words[1:]
    for word in words:
        if not isinstance(node, dict) or word not in node:
            known = list(node) if isinstance(node, dict) else []
            raise UnknownKey(
                shown(f"{quoted(path)}: no '{quoted(word)}'{nearest(word, known)}")
            )
        node = node[word]
    return node


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Validate a JSON tree; a failure is one line that names the key."""
    try:
        return Config.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        raise BadInput(one_line(error, tree)) from None
    except RecursionError:
        raise BadInput("settings: nested too deeply") from None


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """`key=value` words from the command line; values are JSON, else plain strings."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadInput(
                f"{quoted(pair)}: expected key=value, for example returns.gamma=0.99"
            )
        if key in changes:
            raise BadInput(f"{quoted(key)}: given twice")
        try:
            changes[key] = json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            changes[key] = text
    return changes


def digest(config: Config, seed: int | None = None) -> str:
    """12 hex digits that name a configuration (and its seed): sha256 of its canonical JSON.

    Sections that came later are left out while they are off, so that runs keep their names.
    """
    tree = json_tree(config)
    noise = tree.get("noise") or {}
    for section in (tree, tree["env"], tree["network"], tree["returns"], noise):
        for name in _LATER & section.keys():
            if section[name] is None:
                del section[name]
    value: Any = tree if seed is None else [tree, seed]
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(ours: Config, theirs: Config) -> dict[str, tuple[Any, Any]]:
    """Dotted path → (ours, theirs) where they differ; a phase only one has is one row."""
    both = {p.name for p in ours.phases} & {p.name for p in theirs.phases}
    left, right = _leaves(_by_name(ours, both)), _leaves(_by_name(theirs, both))
    paths = list(left) + [path for path in right if path not in left]
    pairs = {path: (left.get(path), right.get(path)) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def _by_name(config: Config, whole: set[str]) -> dict[str, Any]:
    tree = json_tree(config)
    phases = {phase["name"]: phase for phase in tree.pop("phases")}
    shown = {name: phase if name in whole else phase["kind"] for name, phase in phases.items()}
    return {"phases": list(phases)} | tree | shown


def _leaves(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {prefix: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= _leaves(value, f"{prefix}.{key}" if prefix else key)
    return leaves


def _names(tree: Mapping[str, Any]) -> list[str]:
    return [phase["name"] for phase in tree["phases"]]


def _navigable(tree: Mapping[str, Any]) -> bool:
    """Whether paths can still be followed: changes are only validated all together."""
    phases = tree["phases"]
    return isinstance(phases, list) and all(
        isinstance(phase, dict)
        and isinstance(phase.get("name"), str)
        and isinstance(phase.get("kind"), str)
        and phase["kind"] in PHASES
        for phase in phases
    )


def _check_value(path: str, value: Any) -> None:
    """Refuse what no JSON file could hold: lone surrogates, bottomless nesting."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        raise BadInput(f"{quoted(path)}: given a value that is not valid JSON") from None
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise BadInput(f"{quoted(path)}: given a value that is nested too deeply")


def _phase(tree: Mapping[str, Any], name: str) -> Any:
    for phase in tree["phases"]:
        if phase["name"] == name:
            return phase
    raise UnknownKey(shown(f"{quoted(name)}: no such phase{nearest(name, _names(tree))}"))


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    words, names = path.split("."), _names(tree)
    node = tree
    known: list[str] | None = [*Config.model_fields, *names]
    if words[0] in names:
        node = _phase(tree, words[0])
        known = list(PHASES[node["kind"]].model_fields)
        words = words[1:]
        if not words:
            raise UnknownKey(f"{path}: is a phase; set a key of it, such as {path}.sgd.epochs")
    elif words[0] not in Config.model_fields and (hint := elsewhere(words[0], tree)):
        raise UnknownKey(f"{quoted(path)}: no '{quoted(words[0])}'{hint}")
    for word in words[:-1]:
        _check(word, known, path)
        node, known = _descend(node, word, path)
    _check(words[-1], known, path)
    node[words[-1]] = value


def _check(word: str, known: list[str] | None, path: str) -> None:
    if known is not None and word not in known:
        raise UnknownKey(shown(f"{quoted(path)}: no '{quoted(word)}'{nearest(word, known)}"))


def _descend(
    node: dict[str, Any], word: str, path: str
) -> tuple[dict[str, Any], list[str] | None]:
    """One step down, and the keys known there (None: any)."""
    child = node.get(word)
    if not isinstance(child, dict) and word in _OPTIONAL:
        child = node[word] = {}
    if not isinstance(child, dict):
        inside = f"'{quoted(word)}' is a single value and has no keys inside"
        raise UnknownKey(shown(f"{quoted(path)}: {inside}"))
    if word == "options":
        return child, None  # keyword arguments of the environment
    model = _OPTIONAL.get(word)
    return child, list(child) if model is None else list(model.model_fields)
