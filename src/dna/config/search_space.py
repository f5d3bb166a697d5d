"""What a sweep varies: `key=a,b,c`, `key=lo..hi:n` and, in a search, `key=lo..hi`.

a,b,c       these values (JSON, else plain text); commas within brackets or quotes stay
lo..hi:n    n values from lo to hi, evenly in the logarithm where hi is ten times lo or more
lo..hi      anything between, for `--search`; whole numbers if both ends are written so
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dna.common.errors import BadInput
from dna.common.messages import quoted
from dna.config import Config

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\d+))?")
#: From this ratio of the ends on, steps are equal in the logarithm.
LOGARITHMIC = 10
#: Values of one key, and points of a grid.
MOST = 10_000


@dataclass(frozen=True)
class Among:
    """One of some values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Between:
    """Any number from `low` to `high`, ends included."""

    low: float
    high: float
    whole: bool

    @property
    def logarithmic(self) -> bool:
        """Whether what matters is the ratio, as with learning rates."""
        return self.low > 0 and self.high / self.low >= LOGARITHMIC

    def points(self, count: int) -> tuple[Any, ...]:
        """So many numbers, evenly from end to end; of whole numbers those that differ."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high = math.log(low), math.log(high)
        steps = [low + (high - low) * i / (count - 1) for i in range(count)]
        inner = [math.exp(x) if self.logarithmic else x for x in steps[1:-1]]
        ends = [self.low, *(float(f"{x:.6g}") for x in inner), self.high]
        return tuple(dict.fromkeys(map(round, ends) if self.whole else ends))


Axis = Among | Between


def split(words: Sequence[str]) -> tuple[list[str], dict[str, Axis]]:
    """(plain settings, key → what it is varied over) of the words of a command."""
    plain: list[str] = []
    axes: dict[str, Axis] = {}
    for word in words:
        key, equals, text = word.partition("=")
        axis = _axis(key, text) if key and equals else None
        if key in axes or (axis is not None and key in [w.partition("=")[0] for w in plain]):
            raise BadInput(f"{quoted(key)}: given twice")
        if axis is None:
            plain.append(word)
        else:
            axes[key] = axis
    return plain, axes


def _axis(key: str, text: str) -> Axis | None:
    """What a value's text says, or None for a single value."""
    found = _RANGE.fullmatch(text)
    if found is not None:
        return _range(key, *found.groups())
    parts = list(_parts(text))
    if len(parts) == 1:
        return None
    if "" in parts:
        raise BadInput(f"{quoted(key)}: an empty value between commas")
    values = [value_of(part) for part in parts]
    texts = [json.dumps(value, sort_keys=True) for value in values]
    if len(set(texts)) < len(texts):
        raise BadInput(f"{quoted(key)}: the same value twice")
    return Among(tuple(values))


def _range(key: str, low: str, high: str, count: str | None) -> Axis:
    whole = not re.search(r"[.eE]", low + high)
    between = Between(float(low), float(high), whole)
    if not between.low < between.high or math.isinf(between.high - between.low):
        raise BadInput(f"{quoted(key)}: {low}..{high} must go from the smaller to the larger")
    if count is None:
        return between
    if not 2 <= int(count) <= MOST:
        raise BadInput(f"{quoted(key)}: a range has 2 to {MOST:,} points, not {count}")
    return Among(between.points(int(count)))


def _parts(text: str) -> Iterator[str]:
    """The text between commas, but not those within brackets or quotes."""
    depth, inside, start = 0, False, 0
    for i, letter in enumerate(text):
        if letter == '"' and text[i - 1 : i] != "\\":
            inside = not inside
        elif not inside:
            depth += (letter in "[{") - (letter in "]}")
            if letter == "," and depth <= 0:
                yield text[start:i]
                start = i + 1
    yield text[start:]


def value_of(text: str) -> Any:
    """A value as `key=value` reads it: JSON, else plain text."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def grid(axes: Mapping[str, Axis]) -> list[dict[str, Any]]:
    """Every combination; the last key changes fastest."""
    values = []
    for key, axis in axes.items():
        if isinstance(axis, Between):
            ends = f"{written(axis.low, axis.whole)}..{written(axis.high, axis.whole)}"
            text = f"needs a number of points in a grid, such as {ends}:3, or --search optuna"
            raise BadInput(f"{quoted(key)}: {text}")
        values.append(axis.values)
    if math.prod(map(len, values)) > MOST:
        raise BadInput(f"{', '.join(axes)}: more than {MOST:,} points")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*values)]


def written(value: float, whole: bool = False) -> str:
    """A number as one would type it."""
    return str(int(value)) if whole else f"{value:g}"


def label(changes: Mapping[str, Any]) -> str:
    """`policy.sgd.epochs=2 returns.gamma=0.99`, for tables and messages."""
    return " ".join(f"{key}={shown(value)}" for key, value in changes.items())


def shown(value: Any) -> str:
    """A value in a table: short numbers, text without quotes."""
    if isinstance(value, float):
        return written(value)
    return value if isinstance(value, str) else json.dumps(value)


def as_words(changes: Mapping[str, Any]) -> list[str]:
    """The same as `key=value` words that are read back exactly."""
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def tree_of(axes: Mapping[str, Axis]) -> dict[str, Any]:
    """What is varied, as JSON: a list of values, or the ends of a range."""
    return {
        key: list(axis.values)
        if isinstance(axis, Among)
        else {"low": axis.low, "high": axis.high, "whole": axis.whole}
        for key, axis in axes.items()
    }


@dataclass(frozen=True)
class Space:
    """What is searched, and how settings are made of what was found."""

    axes: Mapping[str, Axis]
    configure: Callable[[Mapping[str, Any]], Config]

    def check(self) -> Config:
        """Every value that was named, both ends of each range; the first of all of them."""
        first = {key: ends(axis)[0] for key, axis in self.axes.items()}
        for key, axis in self.axes.items():
            for value in ends(axis):
                self.configure(first | {key: value})
        return self.configure(first)


def ends(axis: Axis) -> tuple[Any, ...]:
    """Values of an axis that must be possible."""
    if isinstance(axis, Among):
        return axis.values
    return (int(axis.low), int(axis.high)) if axis.whole else (axis.low, axis.high)
