"""A thousand bad configurations; each must be refused in one line that names the key."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput
from dna.config import json_tree
from dna.config.overrides import from_tree
from dna.config.presets import PRESETS, preset
from torture.ground import Outcome, dice, timed

WRONG: tuple[Any, ...] = (
    None, True, "many", "", [], {}, [1], {"a": 1}, -1, 0, 2**63, 10**30, 0.5, -0.5,
    math.nan, math.inf, -math.inf, "1e5", "\x00", "é" * 300, 1e-300,
)  # fmt: skip


def configs(root: Path, count: int) -> Outcome:
    """Load every preset, then presets in which one value, key or combination is invalid."""
    chance = dice("configs")
    presets = [preset(name) for name in PRESETS]
    with timed("bad configuration") as outcome:
        for config in presets:
            good = from_tree(json.loads(json.dumps(json_tree(config)))) == config
            outcome.count(good, "a preset is refused")
        while outcome.tried < count + len(presets):
            tree = json_tree(chance.choice(presets))
            _refused(tree, _spoil(tree, chance), outcome)
    return outcome


def _refused(tree: Any, spoiled: "Spoiled", outcome: Outcome) -> None:
    """Check for a one-line error, or that a value which happens to be valid is kept."""
    what = f"{spoiled.path}={spoiled.value!r}"
    try:
        config = from_tree(tree)
    except BadInput as error:
        text = str(error)
        plain = len(text) <= 200 and "\n" not in text and ":" in text
        outcome.count(plain, f"{what}: {text}")
    except Exception as error:
        outcome.count(False, f"{what}: {type(error).__name__} {error}")
    else:
        got = json_tree(config)
        for key in spoiled.keys:
            got = got[key]
        asked = spoiled.value
        if isinstance(got, float) and isinstance(asked, int) and not isinstance(asked, bool):
            asked = float(asked)
        same = got == asked and isinstance(got, bool) == isinstance(asked, bool)
        same |= asked == {} and isinstance(got, dict)  # a section with all its defaults
        outcome.count(same and not spoiled.surely, f"{what}: taken as {got!r}")


@dataclass(frozen=True)
class Spoiled:
    """A changed value, and whether it may be valid by chance."""

    keys: tuple[Any, ...]
    value: Any
    surely: bool  # invalid whatever the value

    @property
    def path(self) -> str:
        return ".".join(map(str, self.keys))


def _spoil(tree: Any, chance: random.Random) -> Spoiled:
    """Make one change to a configuration."""
    holder, keys = chance.choice(list(_places(tree)))
    key, kind = keys[-1], chance.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
        return Spoiled(keys, None, surely=True)
    if kind == 1 and isinstance(holder, dict):
        holder["__class__"] = "os.system"
        return Spoiled((*keys[:-1], "__class__"), "os.system", surely=True)
    if kind == 2:
        value = chance.choice([[], tree["phases"] * 2, [{}], [7], {"kind": "policy"}])
        tree["phases"] = value
        return Spoiled(("phases",), value, surely=True)
    if kind == 3:
        tree["horizon"], tree["agents"] = chance.choice([(7, 11), (2**40, 2**40), (0, 8)])
        return Spoiled(("horizon",), tree["horizon"], surely=True)
    value = chance.choice(WRONG)
    holder[key] = value
    return Spoiled(keys, value, surely=False)


def _places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the container and the path of keys of every value in a tree."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        if key == "options":
            continue  # passed to the environment: any name may be valid
        yield tree, (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))
