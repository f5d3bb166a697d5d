"""A pickle of tensors, read without unpickling.

A pickle is a program. Here its instructions are read one by one by a machine that can only
build dictionaries, tuples, numbers and *descriptions* of tensors. It imports nothing and calls
nothing: the two functions that a dictionary of tensors needs are known by name, any other is
refused, as is any other instruction.
"""

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: A policy's program is far below all of these.
MOST_BYTES, MOST_STEPS, MOST_TENSORS = 2**26, 100_000, 1000
_DICT, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
_STORAGES = {
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch LongStorage": "<i8",
}


class Refused(ValueError):
    """What is in the file that must not be."""


@dataclass(frozen=True)
class _Name:
    """A global of the pickle: never looked up."""

    text: str


@dataclass(frozen=True)
class Storage:
    """Numbers in a row, in a file of their own."""

    key: str
    dtype: str
    elements: int


@dataclass(frozen=True)
class Described:
    """A tensor over a storage; counts are of elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


_MARK = _Name("mark")


def described(program: bytes) -> dict[str, Described]:
    """Name → where its tensor lies, of a program that makes a dictionary of tensors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pickletools' on odd escapes in damaged texts
            found = _Machine().run(program)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused("its pickle is damaged") from None
    if not isinstance(found, dict) or not 0 < len(found) <= MOST_TENSORS:
        raise Refused("does not hold a dictionary of tensors")
    for name, tensor in found.items():
        if len(name) > 200 or not isinstance(tensor, Described):
            raise Refused("does not hold a dictionary of tensors")
    return found


class _Machine:
    """The few instructions of a dictionary of tensors, over inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        """What the program would leave behind."""
        for step, (code, argument, _) in enumerate(pickletools.genops(program)):
            if step > MOST_STEPS:
                raise Refused("its pickle is longer than it should be")
            if code.name == "STOP":
                return self.stack.pop()
            act = _CODES.get(code.name)
            if act is None:
                raise Refused(f"its pickle has the instruction {code.name}")
            act(self, argument)
        raise Refused("its pickle has no end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def name(self, text: str) -> None:
        if text not in (_DICT, _TENSOR) and text not in _STORAGES:
            raise Refused(f"its pickle asks for {text[:60]!r}")
        self.push(_Name(text))

    def stack_name(self, _: Any) -> None:
        last, first = self.stack.pop(), self.stack.pop()
        # A tuple of tuples of … the same tuple is small here, but not as text.
        if not isinstance(last, str) or not isinstance(first, str):
            raise Refused("its pickle has a name that is no text")
        self.name(f"{first} {last}")

    def since_mark(self) -> list[Any]:
        where = max(i for i, value in enumerate(self.stack) if value is _MARK)
        found = self.stack[where + 1 :]
        del self.stack[where:]
        return found

    def gather(self, count: int) -> None:
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        self.push(tuple(found))

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise Refused("its pickle changes what is no dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str):
                raise Refused("its pickle has a key that is no text")
            target[key] = value

    def build(self, _: Any) -> None:
        """`_metadata` of a state dictionary: versions of modules, which nobody needs."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise Refused("its pickle sets the state of an object")

    def storage(self, _: Any) -> None:
        kind, store, key, _where, elements = self.stack.pop()
        known = isinstance(store, _Name) and store.text in _STORAGES
        known = known and isinstance(key, str) and key.isalnum()
        if kind != "storage" or not known or not _count(elements):
            raise Refused("its pickle has a storage of another kind")
        self.push(Storage(key, _STORAGES[store.text], elements))

    def reduce(self, _: Any) -> None:
        given, function = self.stack.pop(), self.stack.pop()
        if function == _Name(_DICT) and given == ():
            self.push({})
        elif function == _Name(_TENSOR) and isinstance(given, tuple) and len(given) in (6, 7):
            self.push(_tensor(*given[:4]))
        else:
            raise Refused("its pickle makes something that is no tensor")


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_BYTES


def _tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Described:
    whole = isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride)
    if not isinstance(storage, Storage) or not whole or len(size) > 8:
        raise Refused("its pickle has a tensor of another kind")
    if not all(_count(n) for n in (offset, *stride)) or not all(_count(n) and n for n in size):
        raise Refused("its pickle has a tensor of an impossible size")
    return Described(storage, offset, size, stride)


_Act = Callable[[_Machine, Any], Any]
_put: _Act = lambda m, a: m.memo.__setitem__(a, m.stack[-1])  # noqa: E731
_get: _Act = lambda m, a: m.push(m.memo[a])  # noqa: E731
_CODES: dict[str, _Act] = {
    "PROTO": lambda m, a: None,
    "FRAME": lambda m, a: None,
    "MARK": lambda m, a: m.push(_MARK),
    "NONE": lambda m, a: m.push(None),
    "NEWTRUE": lambda m, a: m.push(True),
    "NEWFALSE": lambda m, a: m.push(False),
    "EMPTY_DICT": lambda m, a: m.push({}),
    "EMPTY_TUPLE": lambda m, a: m.push(()),
    "TUPLE": lambda m, a: m.push(tuple(m.since_mark())),
    "TUPLE1": lambda m, a: m.gather(1),
    "TUPLE2": lambda m, a: m.gather(2),
    "TUPLE3": lambda m, a: m.gather(3),
    "MEMOIZE": lambda m, a: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "SETITEM": lambda m, a: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, a: m.set_items(m.since_mark()),
    "GLOBAL": lambda m, a: m.name(a),
    "STACK_GLOBAL": lambda m, a: m.stack_name(a),
    "BINPERSID": lambda m, a: m.storage(a),
    "REDUCE": lambda m, a: m.reduce(a),
    "BUILD": lambda m, a: m.build(a),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _get),
    **dict.fromkeys(
        ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"),
        lambda m, a: m.push(a),
    ),
}
