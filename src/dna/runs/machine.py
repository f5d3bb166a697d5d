"""What a run was made with: versions, hardware, threads. Written to `machine.json`."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dna.runs.folder import RunFolder
from dna.runs.setup import How

#: Wrappers around an environment that are looked through.
LAYERS = 50
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


#: Modules whose distributions are among those, or that have none.
KNOWN = {"dna", "gymnasium", "numpy", "minatar", "ale_py", "mujoco", "envpool", "__main__"}


def versions(packages: Sequence[str] = ()) -> dict[str, str | None]:
    """Installed versions of everything that can move a curve, and of these packages."""
    found: dict[str, str | None] = {}
    for name in [*PACKAGES, *packages]:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def packages_of(env: object, env_id: str | None) -> tuple[str, ...]:
    """Distributions that the environments and what is around them come from."""
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
    owners = importlib.metadata.packages_distributions()  # slow: it looks at every file
    return tuple(sorted({name for top in tops for name in owners.get(top, ())}))


def describe(
    device: torch.device,
    env_threads: int | None,
    ranks: int = 1,
    packages: Sequence[str] = (),
) -> dict[str, Any]:
    """This process's machine, as plain JSON."""
    return {
        "versions": versions(packages),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "device": str(device),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "ranks": ranks,
        "torch_threads": torch.get_num_threads(),
        "env_threads": env_threads or "auto",
        "git": _git(),
    }


def setting(device: torch.device, packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the last bits of a run depend on, beside its configuration and seed."""
    found = versions(packages)
    known = ("ppo-dna", "torch", "numpy", "gymnasium", "minatar", "ale-py", "mujoco", "envpool")
    return {
        **{name: found[name] for name in (*known, *packages)},
        "python": platform.python_version(),
        "device": str(device),
        "cpu": _cpu(),
        "torch threads": torch.get_num_threads(),
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each that is not as it was."""
    return [
        f"{name} was {before.get(name)}, now {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def said(reasons: list[str]) -> list[str]:
    """Reasons why a resumed run is not exact, after telling the user."""
    for reason in reasons:
        warnings.warn(f"not exact from here on: {reason}", RuntimeWarning, stacklevel=3)
    return reasons


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git() -> dict[str, Any] | None:
    """The commit of the package's own checkout, if it has one."""
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
    if commit is None or run("ls-files", "--error-unmatch", "config.py") is None:
        return None
    return {"commit": commit, "dirty": bool(run("status", "--porcelain"))}


class Account:
    """Written whenever it changes; of several ranks, by the first."""

    def __init__(
        self, folder: RunFolder, how: How, device: torch.device, packages: tuple[str, ...]
    ) -> None:
        """`packages`: distributions that the environments come from."""
        self.folder, self.how, self.device, self.packages = folder, how, device, packages
        self.facts: dict[str, Any] = {}

    def begin(self, resumes: int, steps: int) -> None:
        """The machine, and what it was asked for; written with what can change."""
        ranks = self.how.world.size
        self.facts = describe(self.device, self.how.env_threads, ranks, self.packages)
        self.facts |= {"resumes": resumes, "warm_up_steps": steps, "asked": self.how.asked()}

    def tell(self, inexact: list[str], compiled: list[str]) -> None:
        """What can change while a run runs: why it is not exact, how its phases compute."""
        facts = self.facts | {"exact": not inexact, "why_not_exact": inexact}
        facts |= {"compiled": compiled}
        if self.how.world.rank == 0 and facts != self.facts:
            self.folder.write_machine(facts)
        self.facts = facts

    def setting(self, compiled: list[str]) -> dict[str, Any]:
        """What the last bits depend on, for a checkpoint to remember."""
        ranks = self.how.world.size
        found = setting(self.device, self.packages) | {"compiled": compiled}
        return found | ({"ranks": ranks} if ranks > 1 else {})
