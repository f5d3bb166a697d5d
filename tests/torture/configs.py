"""A thousand bad configurations, each refused in one line that names the key (G13)."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dna.config import Config, json_tree
from dna.errors import BadInput
from dna.presets import PRESETS, preset
from dna.tweak import from_tree
from torture.ground import Outcome, dice, timed

WRONG: tuple[Any, ...] = (
    None, True, "many", "", [], {}, [1], {"a": 1}, -1, 0, 2**63, 10**30, 0.5, -0.5,
    math.nan, math.inf, -math.inf, "1e5", "\x00", "é" * 300, 1e-300,
)  # fmt: skip


def configs(root: Path, count: int) -> Outcome:
    """Presets with one value, key or combination spoiled; and every preset as it is."""
    chance = dice("configs")
    presets = [preset(name) for name in PRESETS]
    with timed("bad configuration") as outcome:
        for config in presets:
            good = from_tree(json.loads(json.dumps(json_tree(config)))) == config
            outcome.count(good, "a preset is refused")
        while outcome.tried < count + len(presets):
            tree = json_tree(chance.choice(presets))
            what = _spoil(tree, chance)
            _refused(tree, what, outcome)
    return outcome


def _refused(tree: Any, what: str, outcome: Outcome) -> None:
    try:
        config = from_tree(tree)
    except BadInput as error:
        text = str(error)
        plain = len(text) <= 200 and "\n" not in text
        key = what.rsplit(".", 1)[-1].split("=")[0]
        outcome.count(plain and (key in text or ":" in text), f"{what}: {text}")
    except Exception as error:
        outcome.count(False, f"{what}: {type(error).__name__} {error}")
    else:
        # Some values that look wrong are allowed; then they must be what was asked for.
        outcome.count(isinstance(config, Config), f"{what}: taken")


def _spoil(tree: Any, chance: random.Random) -> str:
    """Change one thing; returns what."""
    places = list(_places(tree))
    holder, key, path = chance.choice(places)
    kind = chance.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
        return f"{path}x"
    if kind == 1 and isinstance(holder, dict):
        holder["__class__"] = "os.system"
        return f"{path}.__class__"
    if kind == 2 and tree.get("phases"):
        tree["phases"] = chance.choice([[], tree["phases"] * 2, [{}], [7], {"kind": "policy"}])
        return "phases"
    if kind == 3:
        tree["horizon"], tree["agents"] = chance.choice([(7, 11), (2**40, 2**40), (0, 8)])
        return "horizon"
    value = chance.choice(WRONG)
    holder[key] = value
    return f"{path}={value!r}"


def _places(tree: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        name = f"{path}.{key}" if path else str(key)
        yield tree, key, name
        if isinstance(value, dict | list):
            yield from _places(value, name)
