"""What a run's results depend on to the last bit, and why a resumed run is not exact.

Versions, hardware and threads are written to `machine.json`; a checkpoint remembers those that
can change the last bits, and a resume compares them. Other reasons, such as environments that
could not be restored or logs that were cut, are added to the same list.
"""

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dna.runs.folder import RunFolder
from dna.runs.setup import How

#: Depth to which the wrappers around an environment are searched.
LAYERS = 50
#: Distributions whose versions are recorded.
PACKAGES = [
    "ppo-dna",
    "torch",
    "numpy",
    "gymnasium",
    "pydantic",
    "safetensors",
    "minatar",
    "ale-py",
    "mujoco",
    "envpool",
]
#: Modules that belong to one of these, or to no distribution.
KNOWN = {"dna", "gymnasium", "numpy", "minatar", "ale_py", "mujoco", "envpool", "__main__"}


def versions(packages: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the versions of `PACKAGES` and of these packages; None: not installed."""
    return {name: _version(name) for name in [*PACKAGES, *packages]}


@functools.cache  # a checkpoint asks for all of them, and each is a file to parse
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages_of(env: object, env_id: str | None) -> tuple[str, ...]:
    """Find the distributions that the environments and their wrappers come from."""
    modules = {(env_id or "").partition(":")[0]} if ":" in (env_id or "") else set[str]()
    layer: Any = env
    for _ in range(LAYERS):
        modules.add(type(layer).__module__)
        several = getattr(layer, "envs", None)
        layer = several[0] if isinstance(several, list | tuple) and several else layer
        modules.add(type(layer).__module__)
        if (layer := getattr(layer, "env", None)) is None:
            break
    tops = {module.partition(".")[0] for module in modules} - KNOWN - sys.stdlib_module_names
    if not tops:
        return ()
    return tuple(sorted({name for top in tops for name in _owners(*sys.path).get(top, ())}))


@functools.cache  # slow: it looks at every file of every distribution
def _owners(*path: str) -> Mapping[str, Sequence[str]]:
    """Return the distributions of each module; a longer `path` may have more."""
    return importlib.metadata.packages_distributions()


def describe(
    device: torch.device,
    env_threads: int | None,
    ranks: int = 1,
    packages: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe the machine and this process, as plain JSON."""
    return {
        "versions": versions(packages),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _name(_cpuinfo()),
        "cores": os.cpu_count(),
        "device": str(device),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "ranks": ranks,
        "torch_threads": torch.get_num_threads(),
        "env_threads": env_threads or "auto",
        "git": _git(),
    }


def setting(device: torch.device, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the last bits of results depend on, besides configuration and seed."""
    found = versions(packages)
    known = ("ppo-dna", "torch", "numpy", "gymnasium", "minatar", "ale-py", "mujoco", "envpool")
    return {
        **{name: found[name] for name in (*known, *packages)},
        "python": platform.python_version(),
        "device": str(device),
        "cpu": processor(_cpuinfo()),
        "torch threads": torch.get_num_threads(),
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each entry of the setting that has changed since a checkpoint."""
    return [
        f"{name} was {before.get(name)}, now {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def processor(cpuinfo: str) -> str:
    """Identify the kind of processor, on which the kernels of numpy, torch and MKL depend.

    Virtual machines give different processors the same name, such as "AMD EPYC".
    """
    first = _first(cpuinfo)
    kind = [f"{name} {first[key]}" for key, name in _KIND.items() if key in first]
    words = (first.get("flags") or first.get("Features") or "").split()
    vector = sorted(word for word in words if word.startswith(_VECTOR))
    if vector:
        kind.append(f"vector instructions {zlib.crc32(' '.join(vector).encode()):08x}")
    return f"{_name(cpuinfo)} ({', '.join(kind)})" if kind else _name(cpuinfo)


#: Numbers of a processor in Linux's /proc/cpuinfo, on x86 and ARM, and what to call them.
_KIND = {
    "cpu family": "family",
    "model": "model",
    "CPU implementer": "implementer",
    "CPU part": "part",
}
#: Beginnings of the names of vector instructions in that file, without those of the kernel's
#: protections, which change with its version.
_VECTOR = ("sse", "ssse", "avx", "amx", "fma", "f16c", "asimd", "sve", "i8mm", "bf16")


def _name(cpuinfo: str) -> str:
    return _first(cpuinfo).get("model name") or platform.processor() or platform.machine()


def _first(cpuinfo: str) -> dict[str, str]:
    """The entries of the first processor."""
    lines = [line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines()]
    return {key.strip(): value.strip() for key, _, value in lines}


@functools.cache
def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


@functools.cache  # the code of this process does not change with the checkout
def _git() -> dict[str, Any] | None:
    """Return the commit of the checkout that this package runs from, if any."""
    root = Path(__file__).resolve().parents[1]

    def run(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = run("rev-parse", "HEAD")
    if commit is None or run("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return {"commit": commit, "dirty": bool(run("status", "--porcelain"))}


class MachineRecord:
    """`machine.json`: what a run was made with and, if it is not exact, why.

    Written whenever it changes, by the first rank.
    """

    def __init__(
        self,
        folder: RunFolder,
        how: How,
        device: torch.device,
        packages: tuple[str, ...],
        compiled: Callable[[], list[str]],
        threads: int,
        pieces: dict[str, int],
    ) -> None:
        """`packages`: of the environments; `compiled`: names the compiled phases; `threads`:
        those that share pieces of work; `pieces`: rows of these, where work is cut."""
        self.folder = folder
        self.how = how
        self.device = device
        self.packages = packages
        self.compiled = compiled
        self.threads = threads
        self.pieces = pieces
        self.facts: dict[str, Any] = {}
        self.inexact: list[str] = []  # why the run differs from an uninterrupted one
        self.not_resumable: list[str] = []  # those that were found before any interruption

    def begin(self, resumes: int, warm_up_steps: int) -> None:
        """Write a description of the machine and the options of the run."""
        ranks = self.how.world.size
        self.facts = {
            **describe(self.device, self.how.env_threads, ranks, self.packages),
            "threads": self.threads,
            "pieces": self.pieces,
            "resumes": resumes,
            "warm_up_steps": warm_up_steps,
            "asked": self.how.asked(),
        }
        self.update()

    def add_inexact(self, reasons: list[str]) -> None:
        """Add reasons why the run is not exact from here on, with a warning for each."""
        self._add(reasons, "not exact from here on")

    def add_not_resumable(self, reasons: list[str]) -> None:
        """Add reasons why a resume of this run may not be exact, with a warning for each."""
        self._add(reasons, "a resumed run may not be exact")
        self.not_resumable = list(dict.fromkeys([*self.not_resumable, *reasons]))

    def continue_from(self, inexact: list[str], *, older: bool) -> None:
        """Take over the reasons in a checkpoint, and those that were found after it.

        `older`: the checkpoint is of a version that wrote `machine.json` without a hash.
        """
        found = self.folder.machine().get("not_resumable", [])
        later = [str(reason) for reason in found] if isinstance(found, list) else []
        self.not_resumable = later
        self.inexact = list(dict.fromkeys([*inexact, *later]))
        if not self.folder.machine_is_whole(older=older):
            self.add_inexact(["machine.json was lost or changed, and reasons may be with it"])

    def _add(self, reasons: list[str], meaning: str) -> None:
        for reason in dict.fromkeys(reasons):
            if reason not in self.inexact:
                warnings.warn(f"{meaning}: {reason}", RuntimeWarning, stacklevel=4)
                self.inexact = [*self.inexact, reason]

    def update(self) -> None:
        """Write the file if anything changed: exactness, or which phases are compiled."""
        facts = {
            **self.facts,
            "exact": not self.inexact,
            "why_not_exact": self.inexact,
            "compiled": self.compiled(),
        }
        if self.not_resumable:
            facts["not_resumable"] = self.not_resumable
        if self.how.world.rank == 0 and facts != self.facts:
            self.folder.write_machine(facts)
        self.facts = facts

    def setting(self) -> dict[str, Any]:
        """What the last bits depend on, for a checkpoint to remember."""
        ranks = self.how.world.size
        found = setting(self.device, self.packages)
        found["compiled"] = self.compiled()
        found["pieces"] = self.pieces or None
        if ranks > 1:
            found["ranks"] = ranks
        return found
