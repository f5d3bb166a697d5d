"""Forked copies of this process, in which anything may be tried without changing this one.

`in_forked_copy` protects this process, the files that it has opened and the memory that it
shares. `refuse_effects`, called in the copy, also protects everything else from what Python
code does there.
"""

import gc
import importlib.util
import io
import mmap
import os
import select
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dna.common.process import ending_with_parent

#: Bytes of shared memory that a copy gets for itself.
MOST_SHARED = 2**28
#: Names of shared memory, unlike other devices.
SHARED = ("/dev/shm/", "/dev/zero")
#: Flag of mmap that Python does not name.
MAP_FIXED = 0x10
#: The open files of this process.
DESCRIPTORS = "/proc/self/fd"


def can_fork() -> bool:
    """Whether `in_forked_copy` works here; on macOS, system libraries do not survive a fork."""
    # What a copy refuses needs it, and not every build of Python has it.
    whole = importlib.util.find_spec("fcntl") is not None and hasattr(os, "fork")
    return whole and sys.platform != "darwin" and os.path.isdir(DESCRIPTORS)


def in_forked_copy(
    work: Callable[[Callable[[bytes], None]], None], seconds: float, start: float | None = None
) -> bytes:
    """Run `work` in a forked copy of this process, and return all that it sent.

    It has `start` seconds to send something, and then `seconds` to end.

    Nothing that it does affects this process: global variables and generators stay as they are.
    If it crashes, exits or hangs, what it had sent by then is returned. The copy has no output,
    and does not outlive this process.
    """
    import ctypes  # loaded before the fork: a forked copy should not import

    end_with_parent = ending_with_parent()
    libc = ctypes.CDLL(None)
    source, sink = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not matter
        copy = os.fork()
    if copy == 0:
        try:
            _isolate(end_with_parent, sink)
            _unshare_memory(libc)
            work(lambda data: _write_all(sink, data))
        finally:
            os._exit(0)
    os.close(sink)
    handle = None
    with suppress(OSError, AttributeError):  # not on every Linux
        handle = os.pidfd_open(copy)
    try:
        return _read_all(source, seconds, seconds if start is None else start)
    finally:
        os.close(source)
        # It may be gone, and even its id another's, in a process that ignores SIGCHLD.
        with suppress(ProcessLookupError, ChildProcessError):
            if handle is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            elif signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
                os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
        if handle is not None:
            os.close(handle)


def _isolate(end_with_parent: Callable[[], None] | None, sink: int) -> None:
    """Run in a forked copy: no output, no signal handlers, no finalizers, no shared files."""
    gc.disable()
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_DFL)
    if end_with_parent is not None:
        end_with_parent()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = io.StringIO()
    _separate_files(sink, null)


def _separate_files(sink: int, null: int) -> None:
    """Replace the open files that a forked copy shares with its parent, but for `sink`.

    What can be written becomes the null device. A file that is only read is opened again at
    the same position, because the two processes would move each other's.
    """
    fcntl = sys.modules.get("fcntl")  # a forked copy should not import
    assert fcntl is not None
    for number in map(int, os.listdir(DESCRIPTORS)):
        if number <= 2 or number in (sink, null):
            continue
        try:
            writable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            kind = os.fstat(number).st_mode
            if stat.S_ISREG(kind) and not writable:
                again = os.open(f"{DESCRIPTORS}/{number}", os.O_RDONLY)
                os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            elif not writable and (stat.S_ISDIR(kind) or stat.S_ISCHR(kind)):
                continue
            else:
                again = os.open(os.devnull, os.O_RDWR)
            os.dup2(again, number)
            os.close(again)
        except OSError:  # the listing's own entry; a file that was deleted
            continue


def _unshare_memory(libc: Any) -> None:
    """Replace the writable memory that other processes share by private memory.

    What is too large to be copied can only be read afterwards: writing to it ends the copy.
    """
    import ctypes

    libc.mmap.restype = ctypes.c_void_p
    left = MOST_SHARED
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split(maxsplit=5) for line in file]
    for place, rights, _, _, _, *name in lines:
        device = bool(name) and name[0].startswith("/dev/") and not name[0].startswith(SHARED)
        if rights != "rw-s" or device:
            continue
        start, end = (int(part, 16) for part in place.split("-"))
        address, size = ctypes.c_void_p(start), ctypes.c_size_t(end - start)
        left -= size.value
        if left < 0:
            libc.mprotect(address, size, mmap.PROT_READ)
            continue
        content = ctypes.string_at(start, size.value)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
        rw = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(address, size, rw, flags, -1, ctypes.c_long(0)) == start:
            ctypes.memmove(start, content, size.value)


def _write_all(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]


def _read_all(source: int, seconds: float, start: float) -> bytes:
    """Read a pipe to its end, or as long as there is time."""
    end = time.monotonic() + start
    found = b""
    while True:
        left = max(end - time.monotonic(), 0.0)
        if not select.select([source], [], [], left)[0]:
            return found
        part = os.read(source, 65536)
        if not part:
            return found
        if not found:
            end = time.monotonic() + seconds
        found += part


# ── effects outside of the process ────────────────────────────────────────────────────────────


class OutsideEffect(BaseException):
    """A forked copy would have changed something outside of itself."""


#: Flags of files that are opened to change them.
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Audit events of Python that change something outside of the process, and what they do.
EFFECTS = {
    "os.mkdir": "create",
    "os.remove": "remove",
    "os.rename": "rename",
    "os.rmdir": "remove",
    "os.link": "create",
    "os.symlink": "create",
    "os.truncate": "change",
    "os.chmod": "change",
    "os.chown": "change",
    "os.utime": "change",
    "os.setxattr": "change",
    "os.removexattr": "change",
    "os.kill": "send a signal",
    "os.killpg": "send a signal",
    "os.fork": "start a process",
    "os.forkpty": "start a process",
    "os.exec": "start",
    "os.posix_spawn": "start",
    "os.spawn": "start",
    "os.system": "start",
    "subprocess.Popen": "start",
    "socket.bind": "open a connection",
    "socket.connect": "open a connection",
    "socket.sendto": "open a connection",
    "socket.sendmsg": "open a connection",
    "sqlite3.connect": "write",
}


def refuse_effects() -> list[str]:
    """Refuse everything in this process that Python knows to change something outside of it.

    Returns a list to which each attempt is added, such as `write log.csv`. This cannot be
    undone, and is made for forked copies. What native code does by itself is not noticed.
    """
    attempts: list[str] = []

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect" and args[0] == ":memory:":
            return
        if event == "open":
            path, _, flags = args
            opened = isinstance(path, int)  # before, and it is the null device by now
            if opened or path == os.devnull or not (flags or 0) & WRITING:
                return
        elif event not in EFFECTS:
            return
        what = args[0] if args and isinstance(args[0], str | bytes) else ""
        attempts.append(f"{EFFECTS.get(event, 'write')} {os.fsdecode(what)}".rstrip())
        raise OutsideEffect(attempts[-1])

    def refuse_start(*_: Any) -> None:
        attempts.append("start a process")
        raise OutsideEffect(attempts[-1])

    sys.dont_write_bytecode = True
    sys.addaudithook(refuse)
    # The way in which multiprocessing starts a process has no audit event.
    vars(sys.modules["_posixsubprocess"])["fork_exec"] = refuse_start
    return attempts
