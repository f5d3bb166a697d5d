"""Does a restored environment go on as if nothing had happened? One check for every family.

`continued` plays, takes a snapshot, plays on, and plays the same actions again from the
snapshot in environments made anew, here or in a process of their own.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from safetensors.numpy import load, load_file, save, save_file

from dna.common.randomness import generator, integer
from dna.config import EnvConfig
from dna.envs import Array, Making, Step, VectorEnv, make

#: Steps after the snapshot: in `make test`, and where there is time for the whole.
SHORT, FULL = 60, 500
#: Steps before it, so that it is taken in the middle of episodes.
BEFORE = 45


@dataclass(frozen=True)
class Continuation:
    """What differed between the two ways, and how many episodes ended on the way."""

    mismatches: list[str]
    ends: int


def continued(
    config: EnvConfig,
    steps: int,
    *,
    agents: int = 3,
    threads: int = 1,
    before: int = BEFORE,
    folder: Path | None = None,
) -> Continuation:
    """Compare playing on with playing from a snapshot; `folder`: in another process."""
    making = Making(agents, _seeds(0, agents), threads)
    undisturbed, _ = _play(_started(config, making, before), steps)
    env = _started(config, making, before)
    state = env.snapshot()
    expected, ends = _play(env, steps)
    if folder is None:
        other = make(config, Making(agents, _seeds(1, agents)))
        other.restore(load(save(state)))
        seen, _ = _play(other, steps)
    else:
        seen = _elsewhere(config, state, agents, steps, folder)
    wrong = [f"taking a snapshot moved {each}" for each in _differences(undisturbed, expected)]
    return Continuation(wrong + _differences(expected, seen), ends)


def _seeds(seed: int, agents: int) -> tuple[int, ...]:
    return tuple(integer(seed, "snapshots", agent) for agent in range(agents))


def _started(config: EnvConfig, making: Making, before: int) -> VectorEnv:
    env = make(config, making)
    env.reset()
    rng = generator(0, "snapshots/before")
    for _ in range(before):
        env.step(env.uniform(rng))
    return env


def _play(env: VectorEnv, steps: int) -> tuple[list[dict[str, str]], int]:
    """Digests of all that every step shows, under actions that are always the same."""
    rng, trace, ends = generator(0, "snapshots/after"), [], 0
    for _ in range(steps):
        step = env.step(env.uniform(rng))
        trace.append(_digests(step))
        ends += int(step.done.sum())
    env.close()
    return trace, ends


def _digests(step: Step) -> dict[str, str]:
    shown = {}
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name == "final_obs":
            parts = [np.array([agent]).tobytes() + value[agent].tobytes() for agent in value]
            value = np.frombuffer(b"".join(sorted(parts)), np.uint8)
        data = b"" if value is None else np.ascontiguousarray(value).tobytes()
        shown[field.name] = hashlib.sha256(data).hexdigest()[:16]
    return shown


def _differences(expected: list[dict[str, str]], seen: list[dict[str, str]]) -> list[str]:
    return [
        f"{name} of step {number}"
        for number, (left, right) in enumerate(zip(expected, seen, strict=True))
        for name in left
        if left[name] != right[name]
    ]


def _elsewhere(
    config: EnvConfig, state: dict[str, Array], agents: int, steps: int, folder: Path
) -> list[dict[str, str]]:
    save_file(state, folder / "state.safetensors")
    task = {"config": config.model_dump(mode="json"), "agents": agents, "steps": steps}
    (folder / "task.json").write_text(json.dumps(task))
    subprocess.run([sys.executable, __file__, str(folder)], check=True, timeout=300)
    trace: list[dict[str, str]] = json.loads((folder / "trace.json").read_text())
    return trace


def _answer(folder: Path) -> None:
    """The other process's part."""
    task = json.loads((folder / "task.json").read_text())
    config = EnvConfig.model_validate_json(json.dumps(task["config"]))
    env = make(config, Making(task["agents"], _seeds(1, task["agents"])))
    env.restore(load_file(folder / "state.safetensors"))
    trace, _ = _play(env, task["steps"])
    (folder / "trace.json").write_text(json.dumps(trace))


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
