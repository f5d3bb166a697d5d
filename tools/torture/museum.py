"""The bug museum: 25 bugs that other libraries had, each of which the suite must catch.

Every exhibit is a small patch of the source that introduces the bug. It is applied to a copy,
and the named tests are run against that copy; at least one must fail.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torture.ground import Outcome, timed

ROOT = Path(__file__).parents[2]
RESUME = (
    "tests/reliability/test_resume.py::"
    "test_interrupted_and_uninterrupted_runs_are_the_same_bytes"
)
CARTPOLE = f"{RESUME}[CartPole-v1-dna]"
AUTORESET = "tests/contract/envs/test_autoreset.py"


@dataclass(frozen=True)
class Exhibit:
    """A bug, the patch that introduces it, and the tests that catch it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


EXHIBITS = [
    Exhibit(
        "resume is not identical: environments start anew",
        "runs/checkpoint.py",
        "    if not state:\n",
        "    if state or not state:\n",
        CARTPOLE,
    ),
    Exhibit(
        "checkpoint lacks the optimizers",
        "runs/checkpoint.py",
        '        slots = numbered(tensors, f"optimizer/{phase}")\n',
        "        slots: dict[int, dict[str, Tensor]] = {}\n",
        CARTPOLE,
    ),
    Exhibit(
        "observation statistics are not restored",
        "runs/checkpoint.py",
        "        networks.normalizer.moments.load(",
        "        dict(",
        CARTPOLE,
    ),
    Exhibit(
        "each environment's running return is not restored",
        "algorithm/rollout.py",
        '            self.reward_normalizer.load(parts["reward"])\n',
        '            self.reward_normalizer.moments.load(parts["reward"])\n',
        CARTPOLE,
    ),
    Exhibit(
        "what a schedule depends on starts again at zero",
        "runs/train.py",
        "        progress = self.collector.scores.interactions / config.interactions\n",
        "        progress = (self.collector.scores.interactions if not self.resumes else 0)"
        " / config.interactions\n",
        "tests/reliability/test_keeping.py::test_schedules_go_on_where_they_were",
    ),
    Exhibit(
        "a learning rate set once overrules the schedule",
        "algorithm/engine.py",
        '        group["lr"] = learning_rate\n',
        '        group["lr"] = group.setdefault("first", learning_rate)\n',
        "tests/reliability/test_keeping.py::test_schedules_go_on_where_they_were "
        "tests/contract/algorithm/test_phases.py tests/golden",
    ),
    Exhibit(
        "counters are not restored",
        "runs/train.py",
        "        self.iteration = saved.iteration\n",
        "",
        CARTPOLE,
    ),
    Exhibit(
        "a checkpoint of other settings is taken",
        "runs/checkpoint.py",
        '    if about.get("digest") != digest:\n',
        "    if not about:\n",
        "tests/reliability/test_torture.py::test_damaged_and_foreign_checkpoints",
    ),
    Exhibit(
        "curves overlap after a resume",
        "common/append_log.py",
        "            self.length = min(keep, size)\n",
        "            self.length = size\n",
        "tests/unit/common/test_storage.py::test_a_log_is_cut_back_to_where_it_was",
    ),
    Exhibit(
        "the rollout holds the ends of the step before",
        "algorithm/rollout.py",
        "        self.done[t] = step.done\n",
        "        self.done[t] = np.roll(step.done, 1)\n",
        AUTORESET,
    ),
    Exhibit(
        "returns are not cut at the end of an episode",
        "algorithm/returns.py",
        "    carry = torch.where(done, 0.0, torch.full_like(future, lambda_))\n",
        "    carry = torch.full_like(future, lambda_)\n",
        "tests/unit/algorithm/test_returns.py",
    ),
    Exhibit(
        "a time limit counts as an end",
        "algorithm/rollout.py",
        "            if not step.terminated[agent]:\n",
        "            if step.terminated[agent]:\n",
        AUTORESET,
    ),
    Exhibit(
        "rows that only reset are learned from",
        "algorithm/rollout.py",
        "        self.weight[t] = step.valid\n",
        "        self.weight[t] = 1.0\n",
        AUTORESET,
    ),
    Exhibit(
        "the autoreset mode is guessed",
        "envs/gym.py",
        "    if not isinstance(mode, AutoresetMode):\n",
        "    if not isinstance(mode, AutoresetMode):\n        return AutoresetMode.NEXT_STEP\n"
        "    if mode is None:\n",
        AUTORESET,
    ),
    Exhibit(
        "clipping does nothing",
        "algorithm/phases.py",
        "ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)",
        "ratio * advantage)",
        "tests/contract/algorithm/test_phases.py",
    ),
    Exhibit(
        "a mini-batch of one row",
        "config/phases.py",
        "    minibatch: Annotated[int, Field(ge=2, le=10**9)]\n",
        "    minibatch: Annotated[int, Field(ge=1, le=10**9)]\n",
        "tests/unit/config/test_config.py",
    ),
    Exhibit(
        "a loss that is NaN goes unnoticed",
        "algorithm/engine.py",
        "        if not all(math.isfinite(mean) for mean in means.values()):\n",
        "        if not means:\n",
        "tests/contract/algorithm/test_phases.py",
    ),
    Exhibit(
        "environment seeds are seed + i, so neighboring runs share them",
        "runs/setup.py",
        'tuple(integer(seed, "env", agent, resumes) for agent',
        "tuple(seed + agent for agent",
        "tests/reliability/test_keeping.py::test_neighboring_runs_share_no_environment",
    ),
    Exhibit(
        "an environment ignores its seed",
        "envs/gym.py",
        "reset_of(env, seed=self.seeds[i])",
        "reset_of(env)",
        "tests/contract/envs/test_environments.py",
    ),
    Exhibit(
        "the old folder is deleted before the new one has its name",
        "common/storage.py",
        "                syscalls.rename(folder, old)\n",
        "                remove(folder)\n",
        "tests/unit/common/test_storage.py",
    ),
    Exhibit(
        "what a crash left behind is taken for the newest",
        "runs/checkpoint.py",
        "for name in found if NAME.fullmatch(name))\n",
        "for name in found)\n",
        "tests/reliability/test_keeping.py::test_half_written_checkpoints_are_not_seen",
    ),
    Exhibit(
        "work is done inside the signal handler",
        "common/process.py",
        "        stop.asked = signal.Signals(number).name\n",
        "        raise SystemExit(75)\n",
        CARTPOLE,
    ),
    Exhibit(
        "a dead environment is a bare error",
        "envs/protocol.py",
        "if error is not None and not isinstance(error, DnaError | KeyboardInterrupt):",
        "if isinstance(error, DnaError):",
        "tests/contract/envs/test_environments.py",
    ),
    Exhibit(
        "a disk that is full for a moment ends the run",
        "runs/retention.py",
        "            if self.failures >= TRIES:\n",
        "            if self.failures:\n",
        "tests/reliability/test_keeping.py",
    ),
    Exhibit(
        "merged counts grow geometrically",
        "networks/normalizers.py",
        "        self.count = total\n",
        "        self.count = total + self.count\n",
        "tests/unit/networks/test_normalizers.py",
    ),
]


def museum(root: Path, exhibits: list[Exhibit] | None = None) -> Outcome:
    """Try the bugs one at a time."""
    with timed("bug of the museum, caught by the suite") as outcome:
        _check_quiet(exhibits or EXHIBITS)
        for number, exhibit in enumerate(exhibits or EXHIBITS, 1):
            caught, by = show(root / f"bug{number}", exhibit)
            outcome.count(caught, f"{number}. {exhibit.what}: {by}")
    return outcome


def show(folder: Path, exhibit: Exhibit) -> tuple[bool, str]:
    """Return whether the suite fails with this bug, and the first failing test."""
    shutil.copytree(ROOT / "src", folder / "src")
    path = folder / "src" / "dna" / exhibit.file
    text = path.read_text()
    if text.count(exhibit.old) != 1:
        return False, "cannot be brought in: the source has changed"
    path.write_text(text.replace(exhibit.old, exhibit.new))
    done = _tested(exhibit.tests.split(" "), folder / "src")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    shutil.rmtree(folder)
    by = failed[0].split(" ")[1] if failed else (done.stdout + done.stderr)[-300:]
    return done.returncode == 1 and bool(failed), by


def _check_quiet(exhibits: list[Exhibit]) -> None:
    """Check that nothing fails without a bug; otherwise a failure would prove nothing."""
    tests = sorted({name for exhibit in exhibits for name in exhibit.tests.split(" ")})
    done = _tested(tests, ROOT / "src")
    assert done.returncode == 0, done.stdout[-2000:]


def _tested(tests: list[str], source: Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p"]
    words += ["no:cacheprovider", *tests]
    env = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
