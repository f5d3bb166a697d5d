"""Runs on several ranks, under the real torchrun: as a harness for tests, and as the script
that torchrun starts, which is the command line with one rank's misbehavior on request.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

#: Settings of a run of a second or two: everything that has state is switched on.
CARTPOLE = [
    "CartPole-v1",
    "agents=8",
    "horizon=16",
    "interactions=1536",
    "policy.sgd.minibatch=32",
    "value.sgd.minibatch=32",
    "distil.sgd.minibatch=64",
    "warm_up.high=20",
    'repeat_penalty={"amount": 0.25, "after": 3}',
]
#: Frames stored once, the Nature encoder, and PPG's replay.
PONG = [
    "ALE/Pong-v5",
    "--algo",
    "ppg",
    "agents=4",
    "horizon=8",
    "interactions=128",
    "policy.sgd.minibatch=16",
    "value.sgd.minibatch=16",
    "aux.sgd.minibatch=16",
    "aux.every=2",
    "network.width=32",
    "warm_up.high=5",
    "env.atari.max_frames=60",
]
HOW = ["--threads", "1", "--quiet", "--env-timeout", "60"]
#: Everything a run computes.
FILES = ("config.json", "metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
ROOT = Path(__file__).parents[1]


def command(ranks: int, words: list[str], restarts: int = 0) -> list[str]:
    """The words of a `dna` command under torchrun."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    start += ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    return [*start, str(Path(__file__)), *words]


def started(
    ranks: int, words: list[str], log: Path, restarts: int = 0, mischief: str = ""
) -> subprocess.Popen[bytes]:
    """torchrun, begun; what all ranks print goes to the log."""
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    env |= {"DNA_MISCHIEF": mischief}
    with log.open("wb") as file:
        return subprocess.Popen(
            command(ranks, words, restarts), env=env, stdout=file, stderr=subprocess.STDOUT
        )


def finished(
    ranks: int, words: list[str], log: Path, mischief: str = ""
) -> tuple[int, list[str]]:
    """(torchrun's exit code, the lines that `dna` said) of a run left alone."""
    with ended(started(ranks, words, log, mischief=mischief)) as process:
        return process.wait(timeout=240), said(log)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Nothing is left running, whatever a test found."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)


def said(log: Path) -> list[str]:
    """What our own command said, without torchrun's words."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if line.startswith("dna: ")]


def exit_codes(log: Path) -> set[int]:
    """The exit codes of ranks, as torchrun's report lists them.

    Those that it ended itself (SIGTERM) because another one had left are not among them.
    """
    found = re.findall(r"exitcode *: *(-?[0-9]+)", log.read_text(errors="replace"))
    return {int(code) for code in found} - {-15}


def workers(process: subprocess.Popen[bytes]) -> dict[int, int]:
    """Rank → process, of those that torchrun has running."""
    found = {}
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for pid in map(int, children.split()):
            with contextlib.suppress(OSError, KeyError):
                lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                variables = dict(line.split(b"=", 1) for line in lines if b"=" in line)
                found[int(variables[b"RANK"])] = pid
    return found


def iterations(folder: Path) -> int:
    """Lines of the metrics so far."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def wait_for(folder: Path, lines: int, process: subprocess.Popen[bytes]) -> bool:
    """Until the run has so many iterations; False if it ends before."""
    end = time.monotonic() + 120
    while iterations(folder) < lines and time.monotonic() < end:
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    return iterations(folder) >= lines


def kill_ranks(
    process: subprocess.Popen[bytes], folder: Path, count: int, chance: random.Random
) -> int:
    """SIGKILL a random rank a moment after the run moves again; how often that came to be."""
    killed = 0
    while killed < count and process.poll() is None:
        before = iterations(folder)
        if chance.random() < 0.75:  # else at any moment, also while it starts
            end = time.monotonic() + 60
            while (
                iterations(folder) == before
                and process.poll() is None
                and time.monotonic() < end
            ):
                time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.5))
        there = workers(process)
        if len(there) > 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(there[chance.choice(sorted(there))], signal.SIGKILL)
                killed += 1
        end = time.monotonic() + 60  # until torchrun has replaced all of them
        while (
            process.poll() is None
            and time.monotonic() < end
            and set(workers(process).values()) & set(there.values())
        ):
            time.sleep(0.02)
    return killed


def computed(folder: Path) -> dict[str, bytes]:
    """The bytes of all that a finished run computed, every rank's last state included."""
    newest = max((folder / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    found = {name: (folder / name).read_bytes() for name in FILES}
    return found | {path.name: path.read_bytes() for path in newest.glob("rank*.safetensors")}


# ── what one rank does wrong, in the processes that torchrun starts ─────────────────────────


def perturb() -> None:
    """A normalizer that is off by the last bit, from the fourth iteration on."""
    from dna.runs.train import Run

    iterate = Run.iterate

    def off(self: Run) -> dict[str, float]:
        if self.iteration == 3:
            moments = self.networks.normalizer.moments  # type: ignore[union-attr]
            moments.m2 = moments.m2 * (1 + 2e-16)
        return iterate(self)

    Run.iterate = off  # type: ignore[method-assign]


def _failing_step(make: object) -> None:
    from dna.envs.gym import GymVector

    step, count = GymVector.step, [0]

    def off(self: GymVector, *words: object) -> object:
        count[0] += 1
        if count[0] == 60:
            return make(step(self, *words))  # type: ignore[operator, arg-type]
        return step(self, *words)  # type: ignore[arg-type]

    GymVector.step = off  # type: ignore[method-assign, assignment]


def fail() -> None:
    """An environment that fails."""
    from dna.common.errors import EnvironmentFailure

    def broken(_: object) -> object:
        raise EnvironmentFailure("CartPole-v1: the pole is broken")

    _failing_step(broken)


def hang() -> None:
    """An environment that never answers."""
    _failing_step(lambda _: time.sleep(10_000))


def nan() -> None:
    """A policy whose answer is not a number."""
    from dna.runs.train import Run

    iterate = Run.iterate

    def off(self: Run) -> dict[str, float]:
        if self.iteration == 3:
            self.networks.policy.policy_head.bias.data[0] = float("nan")
        return iterate(self)

    Run.iterate = off  # type: ignore[method-assign]


def bug() -> None:
    """Something that nobody thought of."""

    def broken(_: object) -> object:
        raise ZeroDivisionError("nobody thought of it")

    _failing_step(broken)


def is_late() -> None:
    """Comes to the same refusal seconds after the others."""
    time.sleep(4.0)


if __name__ == "__main__":
    asked = json.loads(os.environ.get("DNA_MISCHIEF") or "{}")
    if asked and int(os.environ["RANK"]) == asked["rank"]:
        globals()[asked["what"]]()
    from dna.cli import main

    sys.exit(main())
