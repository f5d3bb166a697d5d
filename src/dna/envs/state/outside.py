"""Objects that something outside the environments holds too: constants, tables, caches.

A level that a reset chose from a table of the program is part of an environment's graph, but
not its own: restoring must never write into it, or every later reset would find it changed.
Which objects these are is known from the number of references to them, and recorded. Those that
a variable of the program leads to are recorded with that name, so that a restored environment
holds the program's own object again, not a copy. What was the environment's own is never
replaced by an object of the program, however much they are alike.
"""

import sys
import types
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from dna.envs.state import graph
from dna.envs.state.program_state import variables_of

#: What a node says about its own place in a snapshot.
IGNORED = {"number", "held"}
#: What is recorded of an object that is held outside, but that no variable leads to.
UNNAMED: graph.Name = ("", 0)
#: Maximum number of objects that are named.
MOST_NAMED = 100_000
#: Made anew by every restore, so that it is never written into.
REMADE = (tuple, frozenset, types.MethodType, np.generic)
#: Part of a function, which is restored in place.
IN_PLACE = (types.FunctionType, types.CellType, gymnasium.Env)


class Outside:
    """What the program holds of the objects that some environments hold."""

    def __init__(self, roots: Sequence[object]) -> None:
        self.roots = roots
        self.held = held_outside(roots)
        self._named: dict[graph.Name, object] | None = None
        self._named_ids: set[int] | None = None  # of objects that `_named` keeps alive

    def __contains__(self, thing: object) -> bool:
        """Whether something besides the environments holds this object, or what holds it."""
        return id(thing) in self.held

    def names(self) -> dict[int, graph.Name]:
        """Id → name of each object held outside, `UNNAMED` if no variable leads to it."""
        if not self.held and not self._hold_functions():
            return {}
        by_value = (*REMADE, *IN_PLACE)
        return dict.fromkeys(self.held, UNNAMED) | {
            id(thing): name
            for name, thing in reversed(self._objects().items())
            if id(thing) in self.held or isinstance(thing, by_value)
        }

    def _hold_functions(self) -> bool:
        """Whether there may be functions of the program, which references do not tell."""
        things = (thing for root in self.roots for thing in graph.objects_in(root))
        return any(isinstance(thing, types.FunctionType) for thing in things)

    def unchanged(self, node: Any, present: Any, before: graph.Restored) -> "Match | None":
        """The program's object that was recorded in this node, if it is still the same.

        It is found by its name or, where it had none, in the place where it was. Only a node
        that says so was held outside; snapshots of earlier versions say it of named ones alone.
        """
        if "held" not in node:
            return None
        name = (node["held"][0], node["held"][1])
        thing = present if name == UNNAMED and self._is_unnamed(present) else None
        if name != UNNAMED:
            thing = self._objects().get(name)
        if thing is not None and (match := Match(before, thing)).equals(node):
            return match
        return None

    def _is_unnamed(self, present: Any) -> bool:
        """Whether something holds this object, but no variable of the program leads to it."""
        if self._named_ids is None:
            self._named_ids = {id(thing) for thing in self._objects().values()}
        return present in self and id(present) not in self._named_ids

    def remade(self, thing: Any) -> Any:
        """What to fill instead of an object that must not be written into: a shallow copy.

        None where the object is made from what is recorded; views are never written into.
        """
        if type(thing) in (list, dict, deque):
            return thing.copy()
        if isinstance(thing, np.ndarray):
            return thing if thing.base is not None else None
        if hasattr(thing, "__dict__") and not isinstance(thing, types.MethodType):
            new = object.__new__(type(thing))
            vars(new).update(vars(thing))
            return new
        return None

    def _objects(self) -> dict[graph.Name, object]:
        if self._named is None:
            self._named = {}
            for variable, value in variables_of(self.roots[0]).items():
                for number, thing in enumerate(graph.objects_in(value)):
                    self._named[variable, number] = thing
                if len(self._named) > MOST_NAMED:
                    break
        return self._named


def held_outside(roots: Sequence[object]) -> dict[int, object]:
    """Id → object, for all that can be reached from outside without passing a root."""
    # No loop: its variable would hold the last of them.
    things = {id(thing): thing for root in roots for thing in graph.objects_in(root)}
    references = Counter(id(part) for thing in things.values() for part in _parts(thing))
    probe = object()
    things[id(probe)] = probe
    del probe
    usual = sys.getrefcount(things[next(reversed(things))])  # of this function's own
    things.popitem()
    ignored = {id(root) for root in roots}
    found: dict[int, object] = {}
    queue: deque[int] = deque()
    for key in things:
        if sys.getrefcount(things[key]) - usual > references[key]:
            queue.append(key)
    while queue:
        key = queue.popleft()
        thing = things.get(key)
        if thing is None or key in found or key in ignored or isinstance(thing, IN_PLACE):
            continue
        found[key] = thing
        queue.extend(id(part) for part in _parts(thing))
    return {key: thing for key, thing in found.items() if not isinstance(thing, REMADE)}


def _parts(thing: Any) -> Iterator[Any]:
    """Each reference from an object to another, as often as it is held."""
    if isinstance(thing, np.ndarray):
        if thing.base is not None:
            yield thing.base
    elif isinstance(thing, types.MethodType):
        yield thing.__self__
        yield thing.__func__
    elif isinstance(thing, types.CellType):
        with suppress(ValueError):  # empty
            yield thing.cell_contents
    elif isinstance(thing, types.FunctionType):
        yield from thing.__closure__ or ()
        yield from (thing.__defaults__, thing.__kwdefaults__, vars(thing))
    elif type(thing) is dict:
        yield from thing.keys()
        yield from thing.values()
    elif type(thing) in graph.CONTAINERS.values():
        yield from thing
    elif hasattr(thing, "__dict__"):
        yield from vars(thing).values()


class Match:
    """Compares a recorded node with an object, and then knows what its parts stand for."""

    def __init__(self, before: graph.Restored, thing: object) -> None:
        """`before`: what the part of the graph before the node stands for."""
        self.before = before
        self.record = graph.record(thing)
        self.made: dict[int, Any] = {}  # number of a node → the object's part
        self.values: list[Any] = []  # numbers and texts inside the node, in its order

    def equals(self, node: Any) -> bool:
        """Whether the object is, part by part, what was recorded."""
        return self.record is not None and self._same(node, self.record.tree)

    def _same(self, one: Any, other: Any) -> bool:
        if graph.is_value(one) or graph.is_value(other):
            return self._same_value(one, other)
        if "same" in one or "number" in one:
            return self._same_object(one, other)
        return bool(one == other)  # names of the program

    def _same_value(self, one: Any, other: Any) -> bool:
        assert self.record is not None
        if not (graph.is_value(one) and graph.is_value(other)):
            return False
        if isinstance(one, dict) and "again" in one:
            left = [*self.before.values, *self.values][one["again"]]
        else:
            left = graph.decoded(one)
            if graph.is_counted(one, left):
                self.values.append(left)
        again = isinstance(other, dict) and "again" in other
        right = self.record.values[other["again"]] if again else graph.decoded(other)
        return bool(graph.encoded(left) == graph.encoded(right))

    def _same_object(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        assert self.record is not None
        if "same" not in other and "number" not in other:
            return False
        thing = self.record.things[other["same"] if "same" in other else other["number"]]
        if "same" in one:
            number = one["same"]
            return self.made.get(number, self.before.made.get(number)) is thing
        if "number" not in other or one.keys() - IGNORED != other.keys() - IGNORED:
            return False
        self.made[one["number"]] = thing
        keys = [key for key in one if key not in IGNORED]
        return all(self._same_part(key, one[key], other[key], "object" in one) for key in keys)

    def _same_part(self, key: str, one: Any, other: Any, of_object: bool) -> bool:
        assert self.record is not None
        if key in ("array", "bytearray"):
            left, right = self.before.state[one], self.record.arrays[other]
            alike = (left.shape, left.dtype) == (right.shape, right.dtype)
            return alike and left.tobytes() == right.tobytes()
        if key == "dict":
            one, other = ([part for pair in pairs for part in pair] for pairs in (one, other))
        elif key == "fields" and of_object:
            if list(one) != list(other):
                return False
            one, other = [*one.values()], [*other.values()]
        elif key not in graph.CONTAINERS and key != "cells":
            nodes = key in ("fields", "defaults", "keywords", "cell", "self", "of", "view")
            return self._same(one, other) if nodes else bool(one == other)
        return len(one) == len(other) and all(map(self._same, one, other))
