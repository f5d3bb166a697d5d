"""State in numpy arrays: views, layouts, dtypes, flags and subclasses."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from torture.patterns.base import Hidden, built, mixed, pattern

SIZE = 6


@pattern
class MovingRow(Hidden):
    """A view of one row of a table, which moves down a row per step"""

    def __init__(self) -> None:
        super().__init__()
        self.table = np.arange(5 * SIZE, dtype=np.int64).reshape(5, SIZE)
        self.at = 0
        self.row = self.table[0]

    def advance(self, action: int) -> float:
        self.at = (self.at + 1 + action) % 5
        self.row[action] = mixed(self.row.sum(), self.at)
        self.row = self.table[self.at]
        return float(self.row.sum() % 1009)


@pattern
class DoubleBuffer(Hidden):
    """Two halves of one array that swap roles each step"""

    def __init__(self) -> None:
        super().__init__()
        memory = np.arange(2 * SIZE, dtype=np.int64)
        self.front = memory[:SIZE]
        self.back = memory[SIZE:]

    def advance(self, action: int) -> float:
        self.back[:] = (self.front * 5 + np.arange(SIZE) + action) % 1009
        self.front, self.back = self.back, self.front
        return float(self.front.sum())


@pattern
class SwappedHalves(Hidden):
    """Two halves of one array that swap roles at random, added to in place"""

    def begin(self) -> None:
        if self.np_random.random() < 0.5:
            self.memory = np.arange(2 * SIZE, dtype=np.int64)
            self.one = self.memory[:SIZE]
            self.two = self.memory[SIZE:]

    def advance(self, action: int) -> float:
        if not hasattr(self, "memory"):
            return 0.0
        self.one += 1 + action
        if self.np_random.random() < 0.3:
            self.one, self.two = self.two, self.one
        return float(self.one @ np.arange(SIZE) + self.memory[0])


@pattern
class SlidingWindow(Hidden):
    """A view of a long array that slides by one element per step"""

    def __init__(self) -> None:
        super().__init__()
        self.tape = np.random.default_rng(0).integers(0, 999, 400)
        self.window = self.tape[0:4]

    def advance(self, action: int) -> float:
        offset = (self.window.ctypes.data - self.tape.ctypes.data) // 8 + 1
        self.window = self.tape[offset : offset + 4]
        self.window[0] += action
        return float(self.window.sum())


@pattern
class SlidingWindowView(Hidden):
    """One window out of numpy's `sliding_window_view`, writable"""

    def __init__(self) -> None:
        super().__init__()
        self.tape = np.arange(40)
        self.at = 0
        self.windows = sliding_window_view(self.tape, 3, writeable=True)
        self.window = self.windows[0]

    def advance(self, action: int) -> float:
        self.window += 1 + action
        self.at = (self.at + 2) % 38
        self.window = self.windows[self.at]
        return float(self.window.sum())


@pattern
class Reversed(Hidden):
    """A reversed view of an array, or a forward one, in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.tape = np.arange(SIZE)
        self.view = self.tape[::-1]

    def advance(self, action: int) -> float:
        self.view[0] = mixed(self.view[1], action) % 1009
        self.view = self.view[::-1] if action else self.view
        return float(self.view @ np.arange(1, SIZE + 1))


@pattern
class Transposed(Hidden):
    """A square matrix that is replaced by its transpose, a view"""

    def __init__(self) -> None:
        super().__init__()
        self.board = np.arange(9).reshape(3, 3)

    def advance(self, action: int) -> float:
        self.board = self.board.T
        self.board[0, 1] = mixed(self.board[1, 0], action) % 1009
        return float(self.board.ravel() @ np.arange(9))


@pattern
class TransposedAlias(Hidden):
    """A matrix, and an attribute that is either its transpose or a copy of it"""

    def __init__(self) -> None:
        super().__init__()
        self.board = np.arange(9).reshape(3, 3)
        self.other = self.board.T

    def begin(self) -> None:
        self.other = self.board.T if self.np_random.random() < 0.5 else self.board.T.copy()

    def advance(self, action: int) -> float:
        self.board[0, action] += 3
        return float(self.other.ravel() @ np.arange(9))


@pattern
class Strided(Hidden):
    """Every second element of an array, starting at 0 or at 1 in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.all = np.arange(10.0)
        self.some = self.all[::2]

    def advance(self, action: int) -> float:
        self.some += 1 + action
        self.some = self.all[1::2] if self.some.base is None or action else self.all[::2]
        return float(self.some.sum() + self.all[3])


@pattern
class OtherDtype(Hidden):
    """Bytes of an integer array seen as shorter integers at a moving offset"""

    def __init__(self) -> None:
        super().__init__()
        self.words = np.arange(4, dtype=np.uint64)
        self.at = 0
        self.short = self.words.view(np.uint16)[0:3]

    def advance(self, action: int) -> float:
        self.short[0] = mixed(self.short[0], action) % 65536
        self.at = (self.at + 1) % 13
        self.short = self.words.view(np.uint16)[self.at : self.at + 3]
        return float(self.words.sum() % np.uint64(1009))


@pattern
class Broadcast(Hidden):
    """A broadcast view of one row, whose source keeps changing"""

    def __init__(self) -> None:
        super().__init__()
        self.rows = np.arange(6).reshape(2, 3)
        self.wide = np.broadcast_to(self.rows[0], (4, 3))

    def advance(self, action: int) -> float:
        self.rows[action] += np.arange(3)
        self.wide = np.broadcast_to(self.rows[action], (2 + action, 3))
        return float(self.wide.sum())


@pattern
class Overlapping(Hidden):
    """A writable view by strides in which elements overlap"""

    def __init__(self) -> None:
        super().__init__()
        self.tape = np.arange(12, dtype=np.int64)
        self.tiles = as_strided(self.tape[1:], (4, 4), (16, 8))

    def advance(self, action: int) -> float:
        self.tiles[action, 2] = mixed(self.tiles[1, 0], action) % 1009
        return float(self.tiles.sum() + self.tape[0])


@pattern
class ViewOfView(Hidden):
    """A view of a view of a view that an attribute keeps, each moving"""

    def __init__(self) -> None:
        super().__init__()
        self.all = np.arange(32)
        self.half = self.all[8:24]
        self.quarter = self.half[4:12]

    def advance(self, action: int) -> float:
        start = 1 + (int(self.quarter[0]) + action) % 5
        self.half = self.all[start : start + 16]
        self.quarter = self.half[action : action + 8]
        self.quarter += 1
        return float(self.quarter.sum() + self.all[9])


@pattern
class NobodyHoldsTheBase(Hidden):
    """Two overlapping views of an array that no attribute names"""

    def begin(self) -> None:
        memory = np.arange(20)
        start = int(self.np_random.integers(4))
        self.left = memory[start : start + 8]
        self.right = memory[start + 4 : start + 12]

    def advance(self, action: int) -> float:
        self.left += 1 + action
        return float(self.right @ np.arange(8))


@pattern
class SplitApart(Hidden):
    """Views of one array in fresh environments, of two arrays later on"""

    def __init__(self) -> None:
        super().__init__()
        memory = np.arange(8)
        self.left = memory[:6]
        self.right = memory[2:]
        self.episodes = 0

    def begin(self) -> None:
        self.episodes += 1
        if self.episodes == 2:
            self.right = self.right.copy()

    def advance(self, action: int) -> float:
        self.left[3] += 1 + action
        self.right[1] *= 2
        self.right %= 1009
        return float(self.right.sum() + self.left.sum())


@pattern
class JoinedLater(Hidden):
    """Two arrays in fresh environments, two names of one array later on"""

    def __init__(self) -> None:
        super().__init__()
        self.left = np.arange(4)
        self.right = np.arange(4)
        self.episodes = 0

    def begin(self) -> None:
        self.episodes += 1
        if self.episodes == 2:
            self.right = self.left

    def advance(self, action: int) -> float:
        self.left += 1 + action
        return float(self.right.sum())


@pattern
class RingBuffer(Hidden):
    """A ring buffer with a 0-d array as its position"""

    def __init__(self) -> None:
        super().__init__()
        self.ring = np.zeros(5)
        self.at = np.array(0)

    def advance(self, action: int) -> float:
        self.ring[self.at] = mixed(int(self.ring[self.at - 1]), action) % 1009
        self.at += 1
        self.at %= 5
        return float(self.ring @ np.arange(1, 6))


@pattern
class WrittenByOut(Hidden):
    """An attribute that `out=` writes through another name"""

    def __init__(self) -> None:
        super().__init__()
        self.total = np.zeros(3)
        self.out = self.total[1:]

    def advance(self, action: int) -> float:
        np.add(self.total[:2] * 2 % 101, 1 + action, out=self.out)
        self.out = self.total[:2] if action else self.total[1:]
        return float(self.total.sum())


@pattern
class ZeroDimensionalViews(Hidden):
    """A 0-d view of one cell of an array, which moves"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.arange(5)
        self.cell = self.cells[0:1].reshape(())

    def advance(self, action: int) -> float:
        at = (int(self.cells.sum()) + action) % 5
        self.cell += 2
        self.cell = self.cells[at : at + 1].reshape(())
        return float(self.cell + 3 * self.cells[0])


@pattern
class ReadOnlyInTurns(Hidden):
    """An array whose writeable flag is the state"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.arange(4)

    def advance(self, action: int) -> float:
        if self.cells.flags.writeable:
            self.cells += 1 + action
            self.cells.flags.writeable = False
        else:
            self.cells.flags.writeable = True
        return float(self.cells.sum() + self.cells.flags.writeable)


@pattern
class ReadOnlyReplaced(Hidden):
    """A read-only array that is replaced by a new read-only one each step"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.arange(4)
        self.cells.flags.writeable = False

    def advance(self, action: int) -> float:
        self.cells = (self.cells * 5 + action) % 1009
        self.cells.flags.writeable = False
        return float(self.cells.sum())


@pattern
class ChangingShape(Hidden):
    """An array that grows, shrinks, and changes its dtype and memory order"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.arange(4.0).reshape(2, 2)

    def advance(self, action: int) -> float:
        total = mixed(int(self.cells.sum()), action) % 97
        kinds = (np.float64, np.int32, np.float32, np.int64)
        order: Any = "CF"[total % 2]
        shape = (2 + total % 3, 2 + action)
        self.cells = np.full(shape, total, kinds[total % 4], order=order)
        self.cells[0, 0] = 1 + self.cells.itemsize + 2 * self.cells.flags.f_contiguous
        return float(self.cells.sum())


@pattern
class BigEndian(Hidden):
    """Arrays of the other byte order, one of them unaligned"""

    def __init__(self) -> None:
        super().__init__()
        self.big = np.arange(4, dtype=">i4")
        self.odd = np.zeros(33, np.uint8)[1:].view("<i8")

    def advance(self, action: int) -> float:
        self.big[:] = (self.big * 7 + 1 + action) % 1009
        self.odd[0] += self.big[1]
        self.big = self.big.astype(self.big.dtype.newbyteorder())
        return float(self.big.view(np.uint8)[0] + self.odd[0])


@pattern
class FromBuffer(Hidden):
    """An array on the memory of a bytearray that the environment also writes"""

    def __init__(self) -> None:
        super().__init__()
        self.memory = bytearray(range(16))
        self.cells = np.frombuffer(self.memory, np.uint8, 8, 4)

    def advance(self, action: int) -> float:
        at = 4 + (self.memory[5] + action) % 8
        self.memory[at] = (self.memory[at] * 5 + 1) % 256
        self.cells = np.frombuffer(self.memory, np.uint8, 8, self.memory[at] % 8)
        return float(self.cells @ np.arange(8))


@pattern
class BytesBelow(Hidden):
    """An array whose memory is an immutable bytes object"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.frombuffer(bytes(8), np.uint8)

    def advance(self, action: int) -> float:
        values = (self.cells * 3 + np.arange(8, dtype=np.uint8) + action).astype(np.uint8)
        self.cells = np.frombuffer(values.tobytes(), np.uint8)
        return float(self.cells.sum())


@pattern
class MemoryMapped(Hidden):
    """A memory-mapped file that steps write to"""

    def __init__(self) -> None:
        super().__init__()
        with tempfile.TemporaryFile() as file:
            self.cells = np.memmap(file, np.int64, "w+", shape=(4,))

    def advance(self, action: int) -> float:
        self.cells[action] = mixed(int(self.cells.sum()), action) % 1009
        return float(self.cells.sum())


@pattern
class SharedMemoryMap(Hidden):
    """A memory-mapped file that outlives the process"""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        SharedMemoryMap.made += 1
        file = Path(os.environ["ZOO_FILES"]) / f"cells{SharedMemoryMap.made}"
        self.cells = np.memmap(file, np.int64, "r+" if file.exists() else "w+", shape=(4,))

    def advance(self, action: int) -> float:
        self.cells[action] = mixed(int(self.cells.sum()), action) % 1009
        return float(self.cells.sum())


@pattern
class Structured(Hidden):
    """One record of a structured array, a scalar that writes through"""

    def __init__(self) -> None:
        super().__init__()
        self.records = np.zeros(4, [("name", "U3"), ("at", "i4", (2,)), ("heat", "f8")])
        self.record = self.records[0]

    def advance(self, action: int) -> float:
        self.record["heat"] += 1 + action
        self.record["at"][action] += 1
        self.record = self.records[int(self.records["heat"].sum()) % 4]
        return float(
            self.record["heat"] + 5 * self.records["at"].sum() + self.records["heat"][1]
        )


@pattern
class StructuredField(Hidden):
    """A view of one field of a structured array, another one each step"""

    def __init__(self) -> None:
        super().__init__()
        self.records = np.zeros(4, [("a", "i8"), ("b", "i8"), ("c", "i8")])
        self.field = self.records["a"]

    def advance(self, action: int) -> float:
        self.field += np.arange(4) + action
        self.field = self.records["abc"[int(self.field.sum()) % 3]]
        return float(self.field.sum() + self.records["b"][3])


@pattern
class RecordArray(Hidden):
    """A recarray with a record picked out of it"""

    def __init__(self) -> None:
        super().__init__()
        self.records = np.rec.fromrecords([(1, 2.0), (3, 4.0), (5, 6.0)], names="a,b")
        self.record = self.records[1]

    def advance(self, action: int) -> float:
        self.record.a += 1 + action
        self.record = self.records[int(self.record.a) % 3]
        return float(self.records.a.sum() + 7 * self.record.a)


@pattern
class ObjectArray(Hidden):
    """An object array with lists in it, one of them in two cells, and itself"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.empty(4, object)
        one: list[int] = [1]
        self.cells[:] = [one, one, [2], None]
        self.cells[3] = self.cells

    def advance(self, action: int) -> float:
        self.cells[action].append(len(self.cells[3][2]))
        self.cells[2] = self.cells[1] if len(self.cells[0]) % 2 else [5]
        return float(sum(self.cells[0]) + len(self.cells[2]))


@pattern
class ObjectArrayView(Hidden):
    """A moving view of an object array of Python integers"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.array([10**30 + n for n in range(6)], object)
        self.view = self.cells[:2]

    def advance(self, action: int) -> float:
        self.view[0] = self.view[0] * 3 + action
        at = self.view[0] % 5
        self.view = self.cells[at : at + 2]
        return float(sum(self.cells) % 1009)


@pattern
class Masked(Hidden):
    """A masked array whose mask, fill value and hardness change"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.ma.array(np.arange(6), mask=np.array([0, 1, 0, 0, 1, 0], bool))

    def advance(self, action: int) -> float:
        self.cells[action] = int(self.cells.filled().sum()) % 101
        self.cells[int(self.cells.data.sum()) % 6] = np.ma.masked
        if self.cells.mask.sum() > 3:
            self.cells.mask = np.arange(6) == 2
        if action:
            self.cells.harden_mask()
        else:
            self.cells.soften_mask()
        self.cells.fill_value = 7 + action
        return float(self.cells.filled().sum())


@pattern
class MaskedShared(Hidden):
    """Two masked arrays that share one mask array"""

    def __init__(self) -> None:
        super().__init__()
        self.mask = np.zeros(6, bool)
        self.one = np.ma.array(np.arange(6), mask=self.mask, copy=False)
        self.two = np.ma.array(np.arange(6, 12), mask=self.mask, copy=False)
        self.count = 0

    def advance(self, action: int) -> float:
        self.count += 1 + action
        self.mask[:] = (np.arange(6) + self.count) % 3 == 0
        return float(self.one.sum() + 3 * self.two.sum())


@pattern
class Matrix(Hidden):
    """An np.matrix, whose product is a matrix product"""

    def __init__(self) -> None:
        super().__init__()
        self.cells: Any = np.asmatrix(np.array([[1, 1], [1, 0]]))

    def advance(self, action: int) -> float:
        self.cells = (self.cells * self.cells + action) % 97
        return float(self.cells.sum())


@pattern
class MatrixOrArray(Hidden):
    """An attribute that is an np.matrix or a plain array, in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.cells: Any = np.array([[1, 1], [1, 0]])

    def advance(self, action: int) -> float:
        self.cells = (self.cells * self.cells + 1) % 97
        self.cells = np.asmatrix(self.cells) if action else np.asarray(self.cells)
        return float(self.cells.sum())


class Labeled(np.ndarray):
    """An array with attributes, which its views inherit."""

    label: int
    history: list[int]

    def __array_finalize__(self, source: Any) -> None:
        self.label = getattr(source, "label", 0)
        self.history = getattr(source, "history", [])


@pattern
class Subclass(Hidden):
    """An ndarray subclass with attributes that change"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.arange(4).view(Labeled)
        self.cells.history = []

    def advance(self, action: int) -> float:
        self.cells.label = mixed(self.cells.label, action) % 1009
        self.cells.history.append(self.cells.label)
        self.cells = self.cells[::-1]
        self.cells[0] += 1
        return float(self.cells.sum() + sum(self.cells.history))


@pattern
class SubclassReplaced(Hidden):
    """An ndarray subclass made anew each step, with attributes"""

    def begin(self) -> None:
        self.cells = np.arange(3).view(Labeled)

    def advance(self, action: int) -> float:
        fresh = (np.asarray(self.cells) * 3 % 101 + action).view(Labeled)
        fresh.label = self.cells.label + 1 + action
        self.cells = fresh
        return float(self.cells.sum() + self.cells.label)


@pattern
class Dates(Hidden):
    """Arrays and scalars of dates and durations, with NaT among them"""

    def __init__(self) -> None:
        super().__init__()
        self.now = np.datetime64("2020-01-01T00", "h")
        self.times = np.array(["NaT", "2020-01-01"], "M8[D]")
        self.step_size = np.timedelta64(1, "D")

    def advance(self, action: int) -> float:
        self.step_size = self.step_size * 3 % np.timedelta64(17, "D") + np.timedelta64(1, "D")
        self.now = self.now + self.step_size
        self.times[action] = self.now
        if action:
            self.times[0] = np.datetime64("NaT")
        return float(
            int(self.now.astype("M8[h]").astype(int)) % 1009 + np.isnat(self.times).sum()
        )


@pattern
class OddNumbers(Hidden):
    """NaN payloads, negative zeros, infinities and subnormals told apart by their bits"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.array([0x7FF8000000000001, 1 << 63, 1], np.uint64).view(np.float64)
        self.scalar = np.float64(-0.0)

    def advance(self, action: int) -> float:
        bits = self.cells.view(np.uint64)
        bits[0] = 0x7FF8000000000000 + (int(bits[0]) * 5 + 1 + action) % 1009
        bits[2] = (int(bits[2]) * 5 + 1) % 1009
        self.scalar = -self.scalar
        self.cells[1] = self.scalar
        return float(int(bits[0]) % 1009 + int(bits[2]) + 17 * np.signbit(self.cells[1]))


@pattern
class NumpyScalars(Hidden):
    """Scalars of many dtypes, whose overflow and precision are part of the dynamics"""

    def __init__(self) -> None:
        super().__init__()
        self.small = np.uint8(250)
        self.half = np.float16(0.1)
        self.long = np.longdouble(1) / 3
        self.pair = np.complex64(1 + 2j)

    def advance(self, action: int) -> float:
        with np.errstate(over="ignore"):
            self.small = np.uint8(self.small + np.uint8(37 + action))
        self.half = np.float16(self.half * 3 % 1)
        self.long = (self.long * 3.7) * (1 - self.long)
        self.pair = np.complex64(self.pair * 1j + action) / np.complex64(1.01)
        tail = int((self.long * np.longdouble(2) ** 60) % 1009)
        return float(self.small) + float(self.half) + tail + float(self.pair.imag)


@pattern
class StringArrays(Hidden):
    """Arrays of text and of bytes with zeros in them"""

    def __init__(self) -> None:
        super().__init__()
        self.text = np.array(["a", "bb"], "U4")
        self.raw = np.array([b"x\0y", b"z"], "S3")

    def advance(self, action: int) -> float:
        self.text[action] = (str(self.text[1 - action]) + "aé"[action])[-4:]
        self.raw[action] = bytes([len(str(self.text[0])), 0, 1 + self.raw[1 - action][0] % 9])
        return float(sum(map(ord, "".join(self.text))) + sum(b"".join(self.raw)))


@pattern
class WideStrings(Hidden):
    """An array of strings of variable width"""

    def __init__(self) -> None:
        super().__init__()
        self.wide = np.array(["long", "longer"], np.dtypes.StringDType())

    def advance(self, action: int) -> float:
        self.wide[action] = str(self.wide[1 - action])[-19:] + "é" * (1 + action)
        return float(len(str(self.wide[0])) * 3 + len(str(self.wide[1])))


@pattern
class HiddenBuffer(Hidden):
    """An array on a bytearray that nothing else refers to"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = np.frombuffer(bytearray(range(16)), np.uint8)

    def advance(self, action: int) -> float:
        self.cells[action] = (int(self.cells[2]) * 5 + 1 + action) % 256
        self.cells = self.cells[::-1] if action else self.cells
        return float(self.cells @ np.arange(16))


@pattern
class HalfReadFlat(Hidden):
    """The flat iterator of an array, halfway through"""

    def begin(self) -> None:
        self.cells = self.np_random.integers(0, 999, (4, 4))
        self.flat = self.cells.flat

    def advance(self, action: int) -> float:
        return float(next(self.flat))


@pattern
class ReturnedBuffer(Hidden):
    """The observation that is returned is itself the state, written in place"""

    def __init__(self) -> None:
        super().__init__()
        self.seen = np.array([0.3, 0.0], np.float32)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**how)
        self.seen[1] = 0
        return self.seen, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen[0] = (self.seen[0] * 3.7 * (1 - self.seen[0]) + 0.01 * action) % 1
        self.seen[1] += 0.1
        return self.seen, float(self.seen[0]), False, bool(self.seen[1] > 0.75), {}


@pattern
class KeptAction(Hidden):
    """The action array that the caller passed, kept until the next step"""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def begin(self) -> None:
        self.last = np.zeros(2, np.float32)
        self.all: list[Any] = []

    def advance(self, action: Any) -> float:
        value = float(np.abs(self.last).sum() * 10) + sum(float(a[0]) for a in self.all)
        self.last = action
        self.all.append(action)
        return value


@pattern
class NewEachStep(Hidden):
    """Every array is made anew in each step, some as views of temporaries"""

    def begin(self) -> None:
        self.grid = self.np_random.integers(0, 9, (3, 4))
        self.corner = self.grid[1:, 1:]

    def advance(self, action: int) -> float:
        self.grid = np.roll(self.grid, 1 + action, axis=action) + 1
        self.corner = (self.grid * 2)[1:, 1:]
        self.edge = self.grid[:, -1 - action]
        self.edge[0] = 5
        return float(self.grid.ravel() @ np.arange(12) + self.corner.sum())


@pattern
class ViewInContainers(Hidden):
    """Rows of one table in a list, a dict and a tuple, in changing order"""

    def __init__(self) -> None:
        super().__init__()
        self.table = np.arange(12).reshape(4, 3)
        self.rows = list(self.table)
        self.named = {"top": self.table[0], "low": self.table[3]}
        self.pair = (self.table[1], self.table[2])

    def advance(self, action: int) -> float:
        self.rows[0][:] = self.rows[0] * 3 % 101 + action
        self.rows.append(self.rows.pop(0))
        self.named["top"], self.named["low"] = self.named["low"], self.rows[action]
        self.pair = (self.rows[2], self.pair[0])
        self.pair[0][1] += 1
        return float(self.named["top"].sum() + 3 * self.pair[1].sum() + self.table[0, 0])


@pattern
class ArraysInCycle(Hidden):
    """An array subclass whose attribute refers back to the environment's list of arrays"""

    def __init__(self) -> None:
        super().__init__()
        cells = np.arange(3).view(Labeled)
        cells.history = [cells]  # type: ignore[list-item]
        self.cells = cells

    def advance(self, action: int) -> float:
        inner: Any = self.cells.history[0]
        inner[action] += 1 + self.steps
        return float(self.cells.sum())


#: Constants of the module that environments refer to.
PIECES = np.arange(24).reshape(4, 2, 3)


@pattern
class ModuleArrayRow(Hidden):
    """A view of one of several constant arrays of the module"""

    def __init__(self) -> None:
        super().__init__()
        self.piece = PIECES[0]

    def advance(self, action: int) -> float:
        self.piece = PIECES[(int(self.piece[0, 0]) // 6 + 1 + action) % 4]
        return float(PIECES.ravel() @ np.arange(24) % 1009 + self.piece.sum())


@pattern
class ClassArrayWritten(Hidden):
    """A view of an array of the class, written to"""

    table = np.arange(8)

    def __init__(self) -> None:
        super().__init__()
        self.view = self.table[:4]

    def advance(self, action: int) -> float:
        self.view += 1 + action
        start = int(self.view[0]) % 5
        self.view = self.table[start : start + 4]
        return float(self.table.sum())


@pattern
class DtypeChosen(Hidden):
    """A dtype or a scalar type as a value"""

    def __init__(self) -> None:
        super().__init__()
        self.dtype: Any = np.dtype("f4")
        self.state = 0.1

    def advance(self, action: int) -> float:
        self.state = float(np.array(self.state * 3.7 + action, self.dtype)) % 1
        self.dtype = (np.dtype("f4"), np.float16, np.dtype(">f8"))[int(self.state * 30) % 3]
        return self.state * 100


@pattern
class EmptyArrays(Hidden):
    """Arrays without elements, whose shape and dtype are the state"""

    def __init__(self) -> None:
        super().__init__()
        self.empty = np.empty((0, 3))

    def advance(self, action: int) -> float:
        rows = (self.empty.shape[1] * 5 + 1 + action) % 17
        self.empty = np.empty((0, rows), "f4" if action else "i8")
        return float(rows * self.empty.itemsize)


@built
def rows_of_shared_array() -> Any:
    """One array shared by all agents, of which each has a row and sees the whole"""
    shared = np.arange(12).reshape(2, 6)
    made: list[int] = []

    class Sharing(Hidden):
        def __init__(self) -> None:
            super().__init__()
            made.append(1)
            self.all = shared
            self.row = shared[len(made) % 2]

        def advance(self, action: int) -> float:
            self.row[action] += 1 + int(self.all.sum()) % 3
            return float(self.all.sum())

    return Sharing
