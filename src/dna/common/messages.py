"""What a refused setting is told: one short printable line that names the key."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dna.common.sb3_hints import SETTINGS

#: A line is bounded: it may have to quote what the user typed.
LIMIT = 190
#: What users of other libraries type → our key.
ALIASES: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "n_steps": ("horizon",),
    "num_steps": ("horizon",),
    "n_envs": ("agents",),
    "num_envs": ("agents",),
    "total_timesteps": ("interactions",),
    "gae_lambda": ("lambda_pi",),
    "ent_coef": ("entropy_bonus",),
    "clip_range": ("epsilon",),
    "clip_coef": ("epsilon",),
    "n_epochs": ("epochs",),
    "update_epochs": ("epochs",),
    "batch_size": ("minibatch",),
    "max_grad_norm": ("max_gradient_norm",),
    "vf_coef": ("value_weight",),
}
#: Parts of pydantic's locations that are not keys of ours.
_TAGS = ("number", "linear", "known", "custom")
#: Settings that null switches off.
_MAY_BE_OFF = ("normalize_observation", "normalize_reward", "warm_up", "repeat_penalty")


def shown(text: str, limit: int = LIMIT) -> str:
    """Text safe for one line: control characters escaped, length bounded."""
    safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def quoted(text: str) -> str:
    """A word of the user's, short enough to leave room for the reason."""
    return shown(text, 60)


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean 'epochs'?`, or the known words when none is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def elsewhere(word: str, tree: Mapping[str, Any], but: str = "") -> str:
    """`; did you mean 'returns.gamma'?` for a key that lives deeper, or has a name of ours."""
    for key in (word, *ALIASES.get(word, ())):
        for path in _paths(tree):
            if path.split(".")[-1] == key and path != (but or word):
                return f"; did you mean '{quoted(path)}'?"
    return f"; {SETTINGS[word]}" if word in SETTINGS else ""


def one_line(error: ValidationError, tree: Mapping[str, Any]) -> str:
    """Pydantic's first complaint with our path: `policy.sgd.epochs: given -1, …`."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    path = quoted(our_path(first["loc"], tree))
    if first["type"] == "value_error":
        return shown(f"{path}.{message}" if path else message)
    if first["type"] == "json_invalid":
        return "settings: hold text that is not valid Unicode"
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        known = [key for p in _paths(tree) if (key := p.split(".")[-1]) != word]
        wrong = our_path(first["loc"], tree)
        hint = elsewhere(word, tree, wrong) or nearest(word, list(dict.fromkeys(known)))
        return shown(f"{path}: no such setting{hint}")
    if first["type"] == "missing":
        return f"{path}: must be given"
    given = quoted(json.dumps(first["input"], default=str))
    if path.startswith("env.options."):
        message = "must be a string, a number, true, false or null"
    elif path in _MAY_BE_OFF:
        message += "; null switches it off"
    return shown(f"{path}: given {given}, {message[0].lower()}{message[1:]}")


def our_path(location: tuple[int | str, ...], tree: Mapping[str, Any]) -> str:
    """A place in the model as the user writes it: phases by name, no tags of unions."""
    words = list(location)
    if words[:2] == ["env", "options"]:
        return ".".join(str(word) for word in words[:3])
    if len(words) > 1 and words[0] == "phases" and isinstance(words[1], int):
        phases = tree["phases"]
        phase = phases[words[1]] if isinstance(phases, list) else None
        name = phase.get("name") if isinstance(phase, dict) else None
        place = f"phases.{words[1]}"
        if isinstance(name, str) and words[-1] != "name":
            place = name
        words = [place, *words[3:]]
    return ".".join(str(word) for word in words if word not in _TAGS)


def _paths(tree: Mapping[str, Any]) -> list[str]:
    """Every dotted path of a tree as the user writes it, whatever state the tree is in."""
    phases = tree.get("phases")
    named = [p for p in phases if isinstance(p, dict)] if isinstance(phases, list) else []
    rest = {key: value for key, value in tree.items() if key != "phases"}
    sections = {str(p.get("name", "phases")): p for p in named} | rest
    return [path for key, value in sections.items() for path in _below(key, value)]


def _below(path: str, node: Any) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    return [path, *(inner for key in node for inner in _below(f"{path}.{key}", node[key]))]
