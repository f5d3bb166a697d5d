"""State outside of the environment object: modules, the system, threads, libraries in C."""

import concurrent.futures
import contextvars
import ctypes
import datetime
import decimal
import fractions
import hashlib
import io
import mmap
import multiprocessing
import os
import pathlib
import queue
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import uuid
import warnings
import xml.etree.ElementTree
import zlib
from typing import Any, ClassVar

import numpy as np

from torture.patterns.base import Hidden, mixed, pattern

COUNT = 0
TABLE: dict[str, int] = {}
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=1)
LOCAL = threading.local()


@pattern
class ModuleGlobal(Hidden):
    """An integer of the module"""

    def advance(self, action: int) -> float:
        global COUNT
        COUNT = mixed(COUNT, action) % 1009
        return float(COUNT)


@pattern
class ModuleTable(Hidden):
    """A dict of the module, which an attribute also names"""

    def __init__(self) -> None:
        super().__init__()
        self.table = TABLE

    def advance(self, action: int) -> float:
        TABLE["n"] = mixed(self.table.get("n", 0), action) % 1009
        return float(self.table["n"])


@pattern
class LateGlobal(Hidden):
    """A global of the module that matters only after sixty steps"""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0

    def advance(self, action: int) -> float:
        self.age += 1
        if self.age < 60:
            return float(self.age + action)
        TABLE["late"] = mixed(TABLE.get("late", 0), action) % 1009
        return float(TABLE["late"])


@pattern
class RareGlobal(Hidden):
    """A global of the module that is looked at once in twenty steps"""

    def advance(self, action: int) -> float:
        TABLE["rare"] = TABLE.get("rare", 0) + 1 + action
        if self.np_random.random() < 0.05:
            return float(TABLE["rare"])
        return float(action + self.steps)


@pattern
class ClassAttribute(Hidden):
    """A counter of the class"""

    count = 0

    def advance(self, action: int) -> float:
        type(self).count = mixed(self.count, action) % 1009
        return float(self.count)


@pattern
class ClassList(Hidden):
    """A list of the class that instances append to"""

    seen: ClassVar[list[int]] = []

    def advance(self, action: int) -> float:
        self.seen.append(1 + action)
        return float(sum(self.seen))


@pattern
class CountOfInstances(Hidden):
    """The number of environments made so far, part of every reward"""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        CountOfInstances.made += 1
        self.state = 1

    def advance(self, action: int) -> float:
        self.state = mixed(self.state, action) % 101
        return float(self.state + 1000 * CountOfInstances.made)


@pattern
class Metadata(Hidden):
    """An entry of the class's `metadata`"""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "count": 0}

    def advance(self, action: int) -> float:
        self.metadata["count"] = mixed(self.metadata["count"], action) % 1009
        return float(self.metadata["count"])


@pattern
class ContextVariable(Hidden):
    """A context variable"""

    def advance(self, action: int) -> float:
        VARIABLE.set(mixed(VARIABLE.get(), action) % 1009)
        return float(VARIABLE.get())


@pattern
class ThreadLocal(Hidden):
    """A variable of the thread"""

    def advance(self, action: int) -> float:
        LOCAL.count = mixed(getattr(LOCAL, "count", 1), action) % 1009
        return float(LOCAL.count)


@pattern
class EnvironmentVariable(Hidden):
    """An environment variable of the process"""

    def advance(self, action: int) -> float:
        value = mixed(int(os.environ.get("ZOO_COUNT", "1")), action) % 1009
        os.environ["ZOO_COUNT"] = str(value)
        return float(value)


@pattern
class WorkingDirectory(Hidden):
    """The working directory of the process"""

    def advance(self, action: int) -> float:
        here = os.getcwd()
        if action:
            os.chdir("/usr" if here == "/" else "/")
        return float((here == "/") * 3 + (here == "/usr") * 8 + self.steps)


@pattern
class FileOnDisk(Hidden):
    """A number in a file that outlives the process"""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        FileOnDisk.made += 1
        self.file = f"{os.environ['ZOO_FILES']}/count{FileOnDisk.made}"

    def advance(self, action: int) -> float:
        path = pathlib.Path(self.file)
        value = int(path.read_text()) if path.exists() else 1
        value = mixed(value, action) % 1009
        path.write_text(str(value))
        return float(value)


@pattern
class OpenFile(Hidden):
    """The position in an open file"""

    def __init__(self) -> None:
        super().__init__()
        self.file = open(__file__, "rb")  # noqa: SIM115

    def advance(self, action: int) -> float:
        self.file.seek(1 + action, 1)
        return float(self.file.read(1)[0])


@pattern
class FileDescriptor(Hidden):
    """The position of a file descriptor, an integer"""

    def __init__(self) -> None:
        super().__init__()
        self.number = os.open(__file__, os.O_RDONLY)

    def advance(self, action: int) -> float:
        os.lseek(self.number, 1 + action, os.SEEK_CUR)
        return float(os.read(self.number, 1)[0])


@pattern
class InMemoryFile(Hidden):
    """An io.BytesIO with a position"""

    def __init__(self) -> None:
        super().__init__()
        self.file = io.BytesIO(bytes(range(256)) * 4)

    def advance(self, action: int) -> float:
        value = self.file.read(3 + action)[-1]
        self.file.write(bytes([value * 3 % 256]))
        return float(value)


@pattern
class InMemoryText(Hidden):
    """An io.StringIO that is written to"""

    def __init__(self) -> None:
        super().__init__()
        self.file = io.StringIO()

    def advance(self, action: int) -> float:
        self.file.write("ab"[action] * (1 + self.steps % 3))
        return float(sum(map(ord, self.file.getvalue())))


@pattern
class Locked(Hidden):
    """A lock that is held or free, in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def advance(self, action: int) -> float:
        if self.lock.locked():
            self.lock.release()
        elif action:
            self.lock.acquire()
        return float(self.lock.locked() * 5 + self.steps)


@pattern
class UnusedLock(Hidden):
    """A lock that is never held while the environment rests"""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.state = 1

    def advance(self, action: int) -> float:
        with self.lock:
            self.state = mixed(self.state, action) % 1009
        return float(self.state)


@pattern
class Signaled(Hidden):
    """A threading.Event"""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def advance(self, action: int) -> float:
        was = self.event.is_set()
        if action:
            (self.event.clear if was else self.event.set)()
        return float(was * 7 + self.steps)


@pattern
class Semaphores(Hidden):
    """A semaphore whose count is the state"""

    def __init__(self) -> None:
        super().__init__()
        self.semaphore = threading.Semaphore(3)

    def advance(self, action: int) -> float:
        if not self.semaphore.acquire(blocking=False):
            self.semaphore.release(int(2 + action))
        return float(self.semaphore._value * 7 + self.steps)


@pattern
class Queued(Hidden):
    """A queue.Queue with items in it"""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[int] = queue.Queue()
        self.queue.put(1)

    def advance(self, action: int) -> float:
        value = self.queue.get()
        self.queue.put(mixed(value, action) % 1009)
        return float(value)


@pattern
class SimpleQueued(Hidden):
    """A queue.SimpleQueue, implemented in C"""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.queue.put(1)

    def advance(self, action: int) -> float:
        value = self.queue.get()
        self.queue.put(mixed(value, action) % 1009)
        return float(value)


@pattern
class BackgroundThread(Hidden):
    """A thread that computes each step and keeps the state in a local variable"""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Any = queue.SimpleQueue()
        self.answers: Any = queue.SimpleQueue()
        threading.Thread(
            target=self._work, args=(self.asked, self.answers), daemon=True
        ).start()

    @staticmethod
    def _work(asked: Any, answers: Any) -> None:
        state = 1
        while True:
            state = mixed(state, asked.get()) % 1009
            answers.put(state)

    def advance(self, action: int) -> float:
        self.asked.put(action)
        return float(self.answers.get())


@pattern
class ThreadPool(Hidden):
    """An executor of the module whose only thread keeps the state"""

    def advance(self, action: int) -> float:
        return float(_pool().submit(_in_thread, int(action)).result())


def _pool() -> Any:
    if not hasattr(_pool, "made"):
        _pool.made = concurrent.futures.ThreadPoolExecutor(1)  # type: ignore[attr-defined]
    return _pool.made  # type: ignore[attr-defined]


def _in_thread(action: int) -> int:
    LOCAL.state = mixed(getattr(LOCAL, "state", 1), action) % 1009
    return int(LOCAL.state)


@pattern
class ChildProcess(Hidden):
    """A child process that keeps the state, behind pipes"""

    def __init__(self) -> None:
        super().__init__()
        code = "import sys\nn = 1\nfor line in sys.stdin:\n n = (n * 7 + int(line)) % 1009\n"
        self.child = subprocess.Popen(
            [sys.executable, "-S", "-c", code + " print(n, flush=True)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def advance(self, action: int) -> float:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{action + 1}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


@pattern
class PipeOfKernel(Hidden):
    """Bytes in a pipe of the kernel, with only the numbers of its ends as attributes"""

    def __init__(self) -> None:
        super().__init__()
        self.ends = os.pipe()
        os.write(self.ends[1], b"\1")

    def advance(self, action: int) -> float:
        value = os.read(self.ends[0], 1)[0]
        os.write(self.ends[1], bytes([(value * 5 + 1 + action) % 251]))
        return float(value)


@pattern
class SocketPair(Hidden):
    """Bytes on their way between two sockets"""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = socket.socketpair()
        self.left.send(b"\1")

    def advance(self, action: int) -> float:
        value = self.right.recv(1)[0]
        self.left.send(bytes([(value * 5 + 1 + action) % 251]))
        return float(value)


@pattern
class Database(Hidden):
    """A table of an SQLite database in memory"""

    def __init__(self) -> None:
        super().__init__()
        self.base = sqlite3.connect(":memory:", check_same_thread=False)
        self.base.execute("create table t (n)")
        self.base.execute("insert into t values (1)")

    def advance(self, action: int) -> float:
        self.base.execute("update t set n = (n * 7 + ?) % 1009", (int(action) + 1,))
        return float(self.base.execute("select n from t").fetchone()[0])


@pattern
class AnonymousMap(Hidden):
    """An anonymous memory map"""

    def __init__(self) -> None:
        super().__init__()
        self.memory = mmap.mmap(-1, 16)

    def advance(self, action: int) -> float:
        self.memory[0] = (self.memory[0] * 5 + 1 + action) % 251
        return float(self.memory[0])


@pattern
class CtypesArray(Hidden):
    """A ctypes structure, a pointer to it, and numpy on its memory"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = (ctypes.c_int * 4)(1, 2, 3, 4)
        self.seen = np.ctypeslib.as_array(self.cells)

    def advance(self, action: int) -> float:
        self.cells[action] = mixed(self.cells[1 - action], action) % 1009
        return float(self.seen.sum())


@pattern
class ArrayOnForeignMemory(Hidden):
    """A numpy array on memory of ctypes that nothing else refers to"""

    def __init__(self) -> None:
        super().__init__()
        self.seen = np.ctypeslib.as_array((ctypes.c_int64 * 4)(1, 2, 3, 4))

    def advance(self, action: int) -> float:
        self.seen[action] = mixed(int(self.seen.sum()), action) % 1009
        return float(self.seen.sum())


@pattern
class SharedValue(Hidden):
    """A multiprocessing.Value"""

    def __init__(self) -> None:
        super().__init__()
        self.value: Any = multiprocessing.Value("i", 1, lock=False)

    def advance(self, action: int) -> float:
        self.value.value = mixed(self.value.value, action) % 1009
        return float(self.value.value)


@pattern
class Compressor(Hidden):
    """A zlib compressor in the middle of its stream"""

    def __init__(self) -> None:
        super().__init__()
        self.press = zlib.compressobj()

    def advance(self, action: int) -> float:
        self.press.compress(bytes([self.steps, action]))
        return float(len(self.press.copy().flush()) + action)


@pattern
class Digest(Hidden):
    """A hash object that is updated"""

    def __init__(self) -> None:
        super().__init__()
        self.hash = hashlib.sha256()

    def advance(self, action: int) -> float:
        self.hash.update(bytes([int(action)]))
        return float(self.hash.digest()[0])


@pattern
class RegularExpression(Hidden):
    """The iterator of a regular expression, halfway, and its last match"""

    def begin(self) -> None:
        text = "".join(f"{n} " for n in self.np_random.integers(0, 999, 20))
        self.matches = re.finditer(r"\d+", text)

    def advance(self, action: int) -> float:
        return float(int(next(self.matches)[0]) + action)


@pattern
class LastMatch(Hidden):
    """A match object of a compiled pattern that changes"""

    def __init__(self) -> None:
        super().__init__()
        self.pattern = re.compile("1+")
        self.match: Any = self.pattern.search("0110")

    def advance(self, action: int) -> float:
        text = bin(mixed(self.match.end() * 7 + self.match.start(), action + self.steps))
        self.pattern = re.compile("10*1" if action else "1+")
        self.match = self.pattern.search(text) or self.match
        return float(self.match.end() * 3 + self.match.start())


@pattern
class DateAndTime(Hidden):
    """A datetime with a time zone, a date and a timedelta"""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        self.step_size = datetime.timedelta(hours=5)

    def advance(self, action: int) -> float:
        self.now += self.step_size
        self.step_size = datetime.timedelta(hours=1 + self.now.hour * 3 % 7 + action)
        return float(self.now.timestamp() % 100003)


@pattern
class Decimals(Hidden):
    """Decimal numbers under a context of the environment whose precision changes"""

    def __init__(self) -> None:
        super().__init__()
        self.context = decimal.Context(prec=5)
        self.value = decimal.Decimal("0.3")

    def advance(self, action: int) -> float:
        one = self.context.subtract(decimal.Decimal(1), self.value)
        grown = self.context.multiply(self.value, decimal.Decimal("3.7"))
        self.value = self.context.multiply(grown, one)
        self.context.prec = 4 + int(self.value * 10) % 5 + action
        return float(self.value * 1000)


@pattern
class DecimalValue(Hidden):
    """A Decimal alone"""

    def __init__(self) -> None:
        super().__init__()
        self.value = decimal.Decimal("1.00")

    def advance(self, action: int) -> float:
        self.value = (self.value * 3 + decimal.Decimal("0.10") * int(action)) % 101
        return float(self.value) + len(str(self.value))


@pattern
class GlobalDecimalContext(Hidden):
    """The precision of the thread's decimal context"""

    def advance(self, action: int) -> float:
        context = decimal.getcontext()
        context.prec = 5 + (context.prec * 3 + int(action)) % 17
        return float(len(str(decimal.Decimal(1) / 3)))


@pattern
class Fractions(Hidden):
    """A Fraction"""

    def __init__(self) -> None:
        super().__init__()
        self.value = fractions.Fraction(1, 3)

    def advance(self, action: int) -> float:
        self.value = (self.value * fractions.Fraction(7, 5) + int(action)) % 3
        self.value = self.value.limit_denominator(997)
        return float(self.value * 100)


@pattern
class Packed(Hidden):
    """A struct.Struct and the bytes it packs"""

    def __init__(self) -> None:
        super().__init__()
        self.form = struct.Struct("<ih")
        self.memory = self.form.pack(1, 2)

    def advance(self, action: int) -> float:
        one, two = self.form.unpack(self.memory)
        self.form = struct.Struct("<ih" if action else ">ih")
        self.memory = self.form.pack(mixed(one, two) % 10007, (two + 1 + action) % 99)
        return float(sum(self.memory))


@pattern
class PackedBytes(Hidden):
    """Bytes alone, packed and unpacked by functions"""

    def __init__(self) -> None:
        super().__init__()
        self.memory = struct.pack("<ih", 1, 2)

    def advance(self, action: int) -> float:
        one, two = struct.unpack("<ih", self.memory)
        self.memory = struct.pack("<ih", mixed(one, two) % 10007, (two + 1 + action) % 99)
        return float(sum(self.memory))


@pattern
class XmlTree(Hidden):
    """A tree of XML elements, implemented in C"""

    def __init__(self) -> None:
        super().__init__()
        self.root = xml.etree.ElementTree.Element("root", count="1")

    def advance(self, action: int) -> float:
        value = mixed(int(self.root.get("count", "1")), action) % 1009
        self.root.set("count", str(value))
        return float(value)


@pattern
class NumpyErrorState(Hidden):
    """numpy's error handling, which belongs to the thread"""

    def advance(self, action: int) -> float:
        loud = np.geterr()["divide"] == "raise"
        np.seterr(divide="ignore" if loud and action else "raise")
        return float(loud * 5 + self.steps)


@pattern
class WarnedOnce(Hidden):
    """A warning that Python shows once per process"""

    def advance(self, action: int) -> float:
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("default")
            warnings.warn(f"number {self.np_random.integers(6)}", UserWarning, stacklevel=2)
        TABLE["shown"] = TABLE.get("shown", 0) + len(shown)
        return float(TABLE["shown"] + action)


@pattern
class SwitchInterval(Hidden):
    """A setting of the interpreter"""

    def advance(self, action: int) -> float:
        was = sys.getswitchinterval()
        sys.setswitchinterval(0.001 + (was * 1000 * 3 + 1 + int(action)) % 7 / 1000)
        return float(round(sys.getswitchinterval() * 1000))


@pattern
class WallClock(Hidden):
    """The time of day"""

    def advance(self, action: int) -> float:
        return float(time.time_ns() // 1000 % 1009)


@pattern
class SystemRandomness(Hidden):
    """Random bytes of the system and a UUID"""

    def advance(self, action: int) -> float:
        return float(os.urandom(1)[0] + uuid.uuid4().int % 100)


@pattern
class Address(Hidden):
    """The address of an object"""

    def advance(self, action: int) -> float:
        return float(id(self) // 16 % 1009 + action)


@pattern
class StringHash(Hidden):
    """The hash of a string, which depends on the process"""

    def __init__(self) -> None:
        super().__init__()
        self.name = "a"

    def advance(self, action: int) -> float:
        self.name = str(hash(self.name) % 1009 + int(action))
        return float(self.name)


@pattern
class ProcessId(Hidden):
    """The number of the process"""

    def advance(self, action: int) -> float:
        return float(os.getpid() % 1009 + action)


@pattern
class Elapsed(Hidden):
    """The time of the last step by a clock that starts with the machine"""

    def __init__(self) -> None:
        super().__init__()
        self.last = time.monotonic()
        self.state = 1

    def advance(self, action: int) -> float:
        late = time.monotonic() - self.last > 600
        self.last = time.monotonic()
        self.state = mixed(self.state, action) % 1009
        return float(self.state + late)


@pattern
class Identifier(Hidden):
    """A UUID computed from the one before"""

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.UUID(int=1)

    def advance(self, action: int) -> float:
        self.name = uuid.uuid5(self.name, str(action))
        return float(self.name.int % 1009)


@pattern
class PathValue(Hidden):
    """A path that grows and shrinks"""

    def __init__(self) -> None:
        super().__init__()
        self.path = pathlib.Path("/a")

    def advance(self, action: int) -> float:
        self.path = self.path / "abc"[: 1 + action]
        if len(self.path.parts) > 5:
            self.path = self.path.parent.parent.parent
        return float(sum(map(ord, str(self.path))))
