"""Axes of a sweep: `key=a,b,c`, `key=lo..hi:n` and, in a search, `key=lo..hi`.

a,b,c       these values (JSON, else plain text); commas within brackets or quotes do not count
lo..hi:n    n evenly spaced values from lo to hi, on a log scale if hi is ten times lo or more
lo..hi      any number in between, for `--search`; integers if both ends are written as such
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dna.common.errors import BadInput
from dna.common.messages import quoted, shown
from dna.config import Config
from dna.config.overrides import parse_value

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\d+))?")
#: Ratio of the ends from which values are spaced on a log scale.
LOGARITHMIC = 10
#: Maximum number of values of one key, and of points in a grid.
MOST = 10_000


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Any number from `low` to `high`, ends included."""

    low: float
    high: float
    whole: bool

    @property
    def logarithmic(self) -> bool:
        """Whether values are spaced on a log scale, as for learning rates."""
        return self.low > 0 and self.high / self.low >= LOGARITHMIC

    def points(self, count: int) -> tuple[Any, ...]:
        """Return `count` evenly spaced numbers, ends included; integers without duplicates."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high = math.log(low), math.log(high)
        steps = [low + (high - low) * i / (count - 1) for i in range(count)]
        inner = [math.exp(x) if self.logarithmic else x for x in steps[1:-1]]
        ends = [self.low, *(float(f"{x:.6g}") for x in inner), self.high]
        return tuple(dict.fromkeys(map(round, ends) if self.whole else ends))


Axis = Choice | Range


def split(arguments: Sequence[str]) -> tuple[list[str], dict[str, Axis]]:
    """Separate `key=value` arguments into plain settings and axes by key."""
    plain: list[str] = []
    axes: dict[str, Axis] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        axis = _axis(key, text) if key and equals else None
        taken = [other.partition("=")[0] for other in plain]
        if key in axes or (axis is not None and key in taken):
            raise BadInput(f"{quoted(key)}: given twice")
        if axis is None:
            plain.append(argument)
        else:
            axes[key] = axis
    return plain, axes


def _axis(key: str, text: str) -> Axis | None:
    """Parse the text of a value; None if it is a single value."""
    found = _RANGE.fullmatch(text)
    if found is not None:
        return _range(key, *found.groups())
    parts = list(_split_at_commas(text))
    if len(parts) == 1:
        return None
    if "" in parts:
        raise BadInput(f"{quoted(key)}: an empty value between commas")
    values = [parse_value(part) for part in parts]
    texts = [json.dumps(value, sort_keys=True) for value in values]
    if len(set(texts)) < len(texts):
        raise BadInput(f"{quoted(key)}: the same value twice")
    return Choice(tuple(values))


def _range(key: str, low: str, high: str, count: str | None) -> Axis:
    whole = not re.search(r"[.eE]", low + high)
    found = Range(float(low), float(high), whole)
    if not found.low < found.high or math.isinf(found.high - found.low):
        ends = f"{quoted(low)}..{quoted(high)}"
        raise BadInput(shown(f"{quoted(key)}: {ends} must go from the smaller to the larger"))
    if count is None:
        return found
    # The length first: Python refuses to convert thousands of digits.
    if len(count) > len(str(MOST)) or not 2 <= int(count) <= MOST:
        raise BadInput(f"{quoted(key)}: a range has 2 to {MOST:,} points, not {quoted(count)}")
    return Choice(found.points(int(count)))


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the text between commas, ignoring commas within brackets or quotes."""
    depth = 0
    inside = False  # of quotes
    start = 0
    for i, letter in enumerate(text):
        if letter == '"' and text[i - 1 : i] != "\\":
            inside = not inside
        elif not inside:
            depth += (letter in "[{") - (letter in "]}")
            if letter == "," and depth <= 0:
                yield text[start:i]
                start = i + 1
    yield text[start:]


def grid(axes: Mapping[str, Axis]) -> list[dict[str, Any]]:
    """Return every combination of values; the last key changes fastest."""
    values = []
    for key, axis in axes.items():
        if isinstance(axis, Range):
            low = _number_text(axis.low, axis.whole)
            high = _number_text(axis.high, axis.whole)
            raise BadInput(
                f"{quoted(key)}: needs a number of points in a grid, such as {low}..{high}:3, "
                "or --search optuna"
            )
        values.append(axis.values)
    if math.prod(map(len, values)) > MOST:
        raise BadInput(f"{', '.join(axes)}: more than {MOST:,} points")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*values)]


def _number_text(value: float, whole: bool = False) -> str:
    return str(int(value)) if whole else f"{value:g}"


def label(changes: Mapping[str, Any]) -> str:
    """Return `policy.sgd.epochs=2 returns.gamma=0.99`, for tables and messages."""
    return " ".join(f"{key}={value_text(value)}" for key, value in changes.items())


def value_text(value: Any) -> str:
    """Return a value for a table: short numbers, text without quotes."""
    if isinstance(value, float):
        return _number_text(value)
    return value if isinstance(value, str) else json.dumps(value)


def as_words(changes: Mapping[str, Any]) -> list[str]:
    """Return the changes as `key=value` arguments that are parsed back exactly."""
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def tree_of(axes: Mapping[str, Axis]) -> dict[str, Any]:
    """Return the axes as JSON: a list of values, or the ends of a range."""
    return {
        key: list(axis.values)
        if isinstance(axis, Choice)
        else {"low": axis.low, "high": axis.high, "whole": axis.whole}
        for key, axis in axes.items()
    }


@dataclass(frozen=True)
class Space:
    """The axes of a search, and how a configuration is made from a point."""

    axes: Mapping[str, Axis]
    configure: Callable[[Mapping[str, Any]], Config]

    def check(self) -> Config:
        """Validate every listed value and both ends of each range; return the first point."""
        first = {key: _ends(axis)[0] for key, axis in self.axes.items()}
        for key, axis in self.axes.items():
            for value in _ends(axis):
                self.configure(first | {key: value})
        return self.configure(first)


def _ends(axis: Axis) -> tuple[Any, ...]:
    """The values of an axis that must be valid."""
    if isinstance(axis, Choice):
        return axis.values
    return (int(axis.low), int(axis.high)) if axis.whole else (axis.low, axis.high)
