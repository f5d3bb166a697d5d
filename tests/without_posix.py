"""Make this process resemble one on Windows, as far as that is possible on Linux.

`hide` takes away the modules, functions, flags and signals that Windows does not have, and
makes calls on files fail where Windows lets them fail. Libraries are imported first: their own
support of Windows is not the subject, and would look for libraries of Windows.
"""

import importlib
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = (
    *("gymnasium", "multiprocessing", "numpy", "pydantic", "rich.progress"),
    *("safetensors.torch", "scipy.stats", "subprocess", "tensorboard", "torch", "typer"),
)
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
#: Names of `os` that its documentation does not list for Windows.
FUNCTIONS = (
    *("fchmod", "fchown", "fork", "forkpty", "geteuid", "getloadavg", "getpgid", "getuid"),
    *("killpg", "lockf", "memfd_create", "mkfifo", "nice", "posix_fadvise", "posix_fallocate"),
    *("posix_spawn", "pread", "preadv", "pwrite", "pwritev", "register_at_fork", "setsid"),
    *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "sched_param"),
    *("statvfs", "sync", "sysconf", "uname", "fdatasync", "WNOHANG", "SCHED_BATCH"),
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
)
#: The signals that Windows has, and their handlers.
SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}


def hide_modules() -> None:
    """Hide the modules that Windows does not have."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only soft file lock is available")
        importlib.import_module("filelock")


def hide() -> None:
    """Hide what Windows does not have from all modules that are imported from now on.

    Two such processes cannot compete for a lock: in place of Windows' locks, filelock uses
    files that it moves while they are open.
    """
    assert not any(name.split(".")[0] == "dna" for name in sys.modules)
    hide_modules()
    for name in LIBRARIES:
        importlib.import_module(name)
    # It would look for the loaded libraries with functions of Windows.
    controller: Any = importlib.import_module("threadpoolctl").ThreadpoolController
    controller._find_libraries_on_windows = controller._find_libraries_with_dl_iterate_phdr
    _refuse_open_files()
    sys.modules["os"] = _os_of_windows()
    missing = {n for n in dir(signal) if n.startswith(("SIG", "pthread"))} - SIGNALS
    sys.modules["signal"] = _without(signal, missing)
    sys.platform = "win32"


def _without(module: types.ModuleType, names: set[str]) -> types.ModuleType:
    copy = types.ModuleType(module.__name__)
    for name, value in vars(module).items():
        if name not in names:
            setattr(copy, name, value)
    return copy


def _os_of_windows() -> Any:
    fake: Any = _without(os, set(FUNCTIONS))
    fake.name = "nt"

    def open_file(path: Any, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return os.open(path, flags, mode)

    def kill(pid: int, number: int) -> None:
        raise AssertionError(f"os.kill({pid}, {number}) ends a process on Windows")

    fake.open = open_file
    fake.kill = kill
    return fake


def _refuse_open_files() -> None:
    """Refuse to move or delete what is open, and `rename` onto what exists."""

    def refusing(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def checked(*paths: Any, **options: Any) -> None:
            if any(_is_open(Path(path).absolute()) for path in paths):
                raise PermissionError(13, "used by this process", str(paths[0]))
            if name == "rename" and os.path.lexists(paths[1]):
                raise FileExistsError(17, "File exists", str(paths[1]))
            call(*paths, **options)

        return checked

    for name in ("remove", "rename", "replace", "rmdir", "unlink"):
        setattr(os, name, refusing(name, getattr(os, name)))


def _is_open(path: Path) -> bool:
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = Path(os.readlink(fd))
        except OSError:  # the descriptor of the listing itself
            continue
        if target == path or path in target.parents:
            return True
    return False
