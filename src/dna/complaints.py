"""What a refused setting is told: one short printable line that names the key."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

#: A line is bounded: it may have to quote what the user typed.
LIMIT = 190
#: Parts of pydantic's locations that are not keys of ours.
_TAGS = ("number", "linear")


def shown(text: str, limit: int = LIMIT) -> str:
    """Text safe for one line: control characters escaped, length bounded."""
    safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def quoted(text: str) -> str:
    """A word of the user's, short enough to leave room for the reason."""
    return shown(text, 60)


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean 'epochs'?`, or the known words when none is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def one_line(error: ValidationError, tree: Mapping[str, Any]) -> str:
    """Pydantic's first complaint with our path: `policy.sgd.epochs: given -1, …`."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    path = quoted(our_path(first["loc"], tree))
    if first["type"] == "value_error":
        return shown(f"{path}.{message}" if path else message)
    if first["type"] == "extra_forbidden":
        return f"{path}: no such setting"
    if first["type"] == "missing":
        return f"{path}: must be given"
    given = quoted(json.dumps(first["input"], default=str))
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
