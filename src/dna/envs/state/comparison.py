"""Compare two snapshots of environments, and name the first attribute that differs.

A snapshot that is restored and then taken again must equal the original.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
#: Entries of a node that refer to a part of the program by name and checksum.
NAMES = ("function", "method", "constant")
#: Entries of a node that snapshots of earlier versions do not have.
NEWER = ("traits", "space", "class", "attribute", "of", "spec")
#: Entries that only those have; reading them compares these.
OLDER = ("traits",)
#: Kinds of objects for which it matters whether they are the program's own: others are part of
#: it anyway, or cannot be changed.
CHANGEABLE = ("list", "dict", "deque", "set", "array", "view", "bytearray", "object")
SHARING = "sharing"


def difference(before: Mapping[str, Array], after: Mapping[str, Array]) -> str | None:
    """Where `after` differs from `before`; None: nowhere."""
    graphs = [name for name in before if name.rpartition("/")[2] == "graph"]
    inside = tuple(name.removesuffix("graph") + "array/" for name in graphs)
    for name in [*before, *after]:
        if (
            name in graphs
            or name.startswith(inside)
            or (name == SHARING and name not in before)
        ):
            continue
        if name not in before or name not in after:
            return name
        if not _equal(before[name], after[name]):
            return "objects that several environments share" if name == SHARING else name
    for name in graphs:
        prefix = name.removesuffix("graph")
        if name not in after:
            return name
        trees = [json.loads(state[name].tobytes()) for state in (before, after)]
        comparison = _Comparison(_under(before, prefix), _under(after, prefix))
        found = next(comparison.differences(trees[0], trees[1], ""), None)
        if found is not None:
            agent = prefix.removesuffix("/")
            return f"{f'agent {agent}: ' if agent else ''}env{found}"
    return None


def _under(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {
        name.removeprefix(prefix): a for name, a in state.items() if name.startswith(prefix)
    }


def _equal(one: Array, other: Array) -> bool:
    same = (one.shape, one.dtype) == (other.shape, other.dtype)
    return same and one.tobytes() == other.tobytes()


class _Comparison:
    """Two graphs, walked side by side."""

    def __init__(self, before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
        self.before = before
        self.after = after

    def differences(self, one: Any, other: Any, path: str) -> Iterator[str]:
        """Paths of what differs, in the order of the graph."""
        if type(one) is not type(other):
            yield path
        elif not isinstance(one, dict):
            if one != other:
                yield path
        else:
            yield from self._nodes(one, other, path)

    def _nodes(self, one: dict[str, Any], other: dict[str, Any], path: str) -> Iterator[str]:
        if _held(one) != _held(other):
            yield path  # the program's own object in place of one that looks like it, or not
        keys = [
            key
            for key in {**one, **other}
            if key != "held"
            and (key not in NEWER or key in one)
            and (key not in OLDER or key in other)
        ]
        for key in keys:
            if key not in one or key not in other:
                yield path
            elif key in ("array", "bytearray"):
                if not _equal(self.before[one[key]], self.after[other[key]]):
                    yield path
            elif key in NAMES:
                if _name(one[key]) != _name(other[key]):
                    yield path
            elif key == "fields" and "object" in one:
                yield from self._fields(one[key], other[key], path)
            elif key in ("list", "tuple", "deque", "cells"):
                yield from self._items(one[key], other[key], path)
            elif key in ("set", "frozenset"):
                yield from self._sets(one[key], other[key], path)
            elif key == "dict":
                yield from self._pairs(one[key], other[key], path)
            else:
                yield from self.differences(one[key], other[key], path)

    def _fields(self, one: dict[str, Any], other: dict[str, Any], path: str) -> Iterator[str]:
        for name in {**one, **other}:
            if name not in one or name not in other:
                yield f"{path}.{name}"
            else:
                yield from self.differences(one[name], other[name], f"{path}.{name}")

    def _items(self, one: list[Any], other: list[Any], path: str) -> Iterator[str]:
        if len(one) != len(other):
            yield path
            return
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from self.differences(left, right, f"{path}[{index}]")

    def _pairs(self, one: list[Any], other: list[Any], path: str) -> Iterator[str]:
        if len(one) != len(other):
            yield path
            return
        for (k, v), (key, value) in zip(one, other, strict=True):
            shown = f"{path}[{k!r:.40}]"
            yield from self.differences(k, key, shown)
            yield from self.differences(v, value, shown)

    def _sets(self, one: list[Any], other: list[Any], path: str) -> Iterator[str]:
        """Compare items in order if they hash alike in every process, otherwise unordered."""
        if not all(map(_hashes_alike, one)):
            if sorted(map(_unnumbered, one)) != sorted(map(_unnumbered, other)):
                yield path
        else:
            yield from self._items(one, other, path)


def _name(text: str) -> str:
    """A name for comparison: functions of this package without the checksum of their code."""
    return text.partition("#")[0] if text.startswith("dna.") else text


def _held(node: dict[str, Any]) -> str | None:
    """The variable of the program that leads to an object, if it can be changed.

    Generators are left out: those in the program's spaces get other seeds in every process.
    Spaces are part of the program but for what they are checked for.
    """
    changeable = any(kind in node for kind in CHANGEABLE)
    changeable = changeable and not node.get("scalar")
    changeable = changeable and "traits" not in node and "space" not in node
    return json.dumps(node["held"]) if changeable and node.get("held", [""])[0] else None


def _hashes_alike(node: Any) -> bool:
    """Whether a node stands for a value that has the same hash in every process."""
    if isinstance(node, dict) and "tuple" in node:
        return all(map(_hashes_alike, node["tuple"]))
    if isinstance(node, dict):
        return "float" in node or "int" in node or ("array" in node and "dtype" not in node)
    return isinstance(node, int)


def _unnumbered(node: Any) -> str:
    """A node as text, without the numbers that depend on its place in the order."""
    if isinstance(node, dict):
        node = {k: _unnumbered(v) for k, v in node.items() if k not in ("number", "held")}
    elif isinstance(node, list):
        node = [_unnumbered(each) for each in node]
    return json.dumps(node)
