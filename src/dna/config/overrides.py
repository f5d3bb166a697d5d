"""Change, read, compare and name configurations; `tweak` is the only way to change a setting.

A change is made in the JSON tree at a dotted path (phases are addressed by their name), and
the *whole* model is validated again, so a preset with overrides is as safe as a preset.
"""

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError

from dna.common.errors import BadInput, UnknownKey
from dna.common.messages import (
    elsewhere,
    misspelled,
    nearest,
    not_a_setting,
    one_line,
    quoted,
    shown,
)
from dna.config.environments import Atari, Procgen, RepeatPenalty
from dna.config.phases import PHASES, Linear, Noise
from dna.config.run import Config, ObservationNorm, RewardNorm, WarmUp, json_tree

#: Optional sections: setting a key inside one switches it on with its defaults.
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
#: Maximum number of brackets in one value; a whole list of phases has far fewer.
MOST_BRACKETS = 100


def tweak(config: Config, **changes: Any) -> Config:
    """Return a configuration with changes, as in `tweak(DNA, **{"policy.sgd.epochs": 1})`."""
    tree = json_tree(config)
    for path, value in changes.items():
        _check_value(path, value, tree)
        if not _navigable(tree):
            break  # an earlier change broke the phases; validation will say how
        _set(tree, path, deepcopy(value))  # a later change must not alter the caller's value
    return from_tree(tree)


def without(config: Config, name: str) -> Config:
    """Return the configuration without the phase of that name (an ablation)."""
    tree = json_tree(config)
    _phase(tree, name)
    tree["phases"] = [phase for phase in tree["phases"] if phase["name"] != name]
    return from_tree(tree)


def at(config: Config, path: str) -> Any:
    """Return the value at a dotted path, as JSON."""
    node: Any = json_tree(config)
    keys = path.split(".")
    if keys[0] in _names(node):
        node = _phase(node, keys[0])
        keys = keys[1:]
    for key in keys:
        _check(key, list(node) if isinstance(node, dict) else [], path)
        node = node[key]
    return node


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Validate a JSON tree; an error is one line that names the key."""
    try:
        return Config.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        raise BadInput(one_line(error, tree)) from None
    except RecursionError:
        raise BadInput("settings: nested too deeply") from None


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` arguments of the command line."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadInput(
                f"{quoted(pair)}: expected key=value, for example returns.gamma=0.99"
            )
        if key in changes:
            raise BadInput(f"{quoted(key)}: given twice")
        changes[key] = parse_value(text)
    return changes


def parse_value(text: str) -> Any:
    """Parse the value of a `key=value` argument: JSON, else plain text."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def digest(config: Config, seed: int | None = None) -> str:
    """Return 12 hex digits that name a configuration (and seed): sha256 of canonical JSON.

    Settings added in later versions are left out while they are off, so that older runs keep
    their names.
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


def differences(left: Config, right: Config) -> dict[str, tuple[Any, Any]]:
    """Map each differing path to (left, right); None where one has no such phase or section."""
    before = _leaves(_by_name(left))
    after = _leaves(_by_name(right))
    pairs = {path: (before.get(path), after.get(path)) for path in {**before, **after}}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def _by_name(config: Config) -> dict[str, Any]:
    """Return the settings with the phases under their names, as overrides address them."""
    tree = json_tree(config)
    phases = {phase.pop("name"): phase for phase in tree.pop("phases")}
    return {"phases": list(phases)} | tree | phases


def _leaves(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {prefix: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves.update(_leaves(value, f"{prefix}.{key}" if prefix else key))
    return leaves


def _names(tree: Mapping[str, Any]) -> list[str]:
    return [phase["name"] for phase in tree["phases"]]


def _navigable(tree: Mapping[str, Any]) -> bool:
    """Whether paths can still be followed; changes are only validated at the end."""
    phases = tree["phases"]
    return isinstance(phases, list) and all(
        isinstance(phase, dict)
        and isinstance(phase.get("name"), str)
        and isinstance(phase.get("kind"), str)
        and phase["kind"] in PHASES
        for phase in phases
    )


def _check_value(path: str, value: Any, tree: Mapping[str, Any]) -> None:
    """Refuse what no JSON file can hold: functions, lone surrogates, endless nesting."""

    def refuse(inner: Any) -> None:
        raise BadInput(not_a_setting(path, inner, tree))

    try:
        text = json.dumps(value, ensure_ascii=False, default=refuse)
        text.encode()
    except (TypeError, ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        raise BadInput(f"{quoted(path)}: given a value that is not valid JSON") from None
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise BadInput(f"{quoted(path)}: given a value that is nested too deeply")


def _phase(tree: Mapping[str, Any], name: str) -> Any:
    for phase in tree["phases"]:
        if phase["name"] == name:
            return phase
    raise UnknownKey(shown(f"{quoted(name)}: no such phase{nearest(name, _names(tree))}"))


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path of the tree; unknown keys are refused."""
    keys = path.split(".")
    names = _names(tree)
    node = tree
    first = [*Config.model_fields, *names]
    known: list[str] | None = first
    if keys[0] in names:
        node = _phase(tree, keys[0])
        known = list(PHASES[node["kind"]].model_fields)
        keys = keys[1:]
        if not keys:
            raise UnknownKey(f"{path}: is a phase; set a key of it, such as {path}.sgd.epochs")
    elif keys[0] not in Config.model_fields and (hint := _suggestion(keys, first, tree)):
        raise UnknownKey(shown(f"{quoted(path)}: no '{quoted(keys[0])}'{hint}"))
    for key in keys[:-1]:
        _check(key, known, path)
        node, known = _descend(node, key, path)
    _check(keys[-1], known, path, tree)
    node[keys[-1]] = value


def _suggestion(keys: list[str], first: list[str], tree: Mapping[str, Any]) -> str:
    """Suggest a path for one whose first name is none of those that may come first."""
    if len(keys) == 1:
        return elsewhere(keys[0], tree) or misspelled(keys[0], tree)
    near = nearest(keys[0], first)
    if "did you mean" in near:
        return near
    return elsewhere(keys[-1], tree) or elsewhere(keys[0], tree)


def _check(
    key: str, known: list[str] | None, path: str, tree: Mapping[str, Any] | None = None
) -> None:
    """Refuse an unknown key; with the tree, the hint may name a key of another section."""
    if known is None or key in known:
        return
    hint = nearest(key, known)
    if tree is not None and "did you mean" not in hint:
        hint = elsewhere(key, tree, path) or hint
    raise UnknownKey(shown(f"{quoted(path)}: no '{quoted(key)}'{hint}"))


def _descend(
    node: dict[str, Any], key: str, path: str
) -> tuple[dict[str, Any], list[str] | None]:
    """Return the section under a key, and the keys known there (None: any)."""
    child = node.get(key)
    if not isinstance(child, dict) and key in _OPTIONAL:
        child = {}
        node[key] = child
    if not isinstance(child, dict):
        inside = f"'{quoted(key)}' is a single value and has no keys inside"
        raise UnknownKey(shown(f"{quoted(path)}: {inside}"))
    if key == "options":
        return child, None  # keyword arguments of the environment
    model = _OPTIONAL.get(key)
    return child, list(child) if model is None else list(model.model_fields)
