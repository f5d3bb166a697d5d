"""What is installed, and whether an environment keeps the contract.

The conformance check is the one our own environments pass: users run it on theirs.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from dna.common.errors import BadInput, DnaError
from dna.common.randomness import generator, integer
from dna.config import EnvConfig
from dna.config.environments import ATARI, PROCGEN
from dna.config.presets import for_environment
from dna.distributed.launch import launched
from dna.distributed.world import backends
from dna.envs import Making, Step, VectorEnv, make
from dna.envs.factory import factory
from dna.envs.procgen import load_qt
from dna.runs.reproducibility import versions

#: Extra → the modules it brings and what they are for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "minatar": (("minatar",), "MinAtar's five games"),
    "classic": (("pygame", "Box2D"), "pictures of classic control, LunarLander"),
    "atari": (("ale_py", "cv2"), "Atari games"),
    "mujoco": (("mujoco", "imageio"), "MuJoCo tasks"),
    "procgen": (("envpool",), "Procgen games"),
    "media": (("av", "matplotlib"), "videos and plots"),
    "track": (("wandb", "trackio"), "Weights & Biases, trackio"),
    "search": (("optuna",), "searches for settings"),
    "ray": (("ray",), "sweeps on a cluster"),
    "export": (("onnx", "onnxruntime", "onnxscript"), "policies as ONNX"),
    "hub": (("huggingface_hub",), "the Hugging Face Hub"),
}
AGENTS = 4
STEPS = 500
#: Steps before a snapshot, and after it.
SNAPSHOT_STEPS = 50


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    level: Literal["ok", "note", "fail"]
    text: str


def installation() -> Iterator[Finding]:
    """Versions, and what each missing extra would bring."""
    known = {name: version for name, version in versions().items() if version}
    yield Finding("ok", ", ".join(f"{name} {version}" for name, version in known.items()))
    yield Finding("ok", ranks())
    for extra, (modules, what) in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            fix = f"pip install 'ppo-dna[{extra}]'"
            yield Finding("note", f"{what}: {', '.join(missing)} missing; {fix}")
        else:
            yield Finding("ok", f"{what}: installed")
            if extra == "procgen":
                yield _qt()


def ranks() -> str:
    """How many processes share the work here, and how they could talk."""
    launch, ways = launched(), ", ".join(backends()) or "none"
    return f"ranks: {launch.size} (torchrun makes more), joined by: {ways}"


def _qt() -> Finding:
    try:
        return Finding("ok", f"Procgen's Qt 5: {load_qt()}")
    except BadInput as error:
        return Finding("note", str(error))


def conformance(env_id: str, *, allow_import: bool = False) -> Iterator[Finding]:
    """Check one environment, set up as `dna train` does, against what training relies on."""
    config = for_environment(env_id).env
    try:
        first = _play(config, 0, allow_import)
        yield Finding("ok", f"spaces: {first.described}")
        yield from _episodes(first, limited=_is_own(config))
        again, other = _play(config, 0, allow_import), _play(config, 1, allow_import)
        saved = _continues(config, allow_import)
    except BadInput:
        raise  # there is no such environment, or it cannot be had
    except DnaError as error:
        yield Finding("fail", str(error))
        return
    if first.trace != again.trace:
        yield Finding("fail", "the same seed and actions gave other observations or rewards")
    else:
        yield Finding("ok", "the same seed and actions give the same episode")
    if first.trace == other.trace:
        yield Finding("note", "seeds change nothing: reset(seed=…) may be ignored")
    else:
        yield Finding("ok", "another seed gives another episode")
    yield saved
    yield from _dtype(config, allow_import)


@dataclass(frozen=True)
class _Trace:
    described: str
    trace: list[bytes]
    ends: int
    cuts: int
    magnitude: float


def _build(config: EnvConfig, seed: int, allow_import: bool) -> VectorEnv:
    # Atari with worker processes, as training has it.
    agents, threads = (8, 2) if config.atari is not None else (AGENTS, 1)
    seeds = tuple(integer(seed, "doctor/env", agent) for agent in range(agents))
    return make(config, Making(agents, seeds, threads, allow_import))


def _play(config: EnvConfig, seed: int, allow_import: bool) -> _Trace:
    with closing(_build(config, seed, allow_import)) as env:
        return _walk(env)


def _continues(config: EnvConfig, allow_import: bool) -> Finding:
    """Take a snapshot, play on, and play the same from it in environments of another seed."""
    with (
        closing(_build(config, 0, allow_import)) as env,
        closing(_build(config, 1, allow_import)) as other,
    ):
        if env.inexact is not None:
            text = f"{env.inexact}: a resumed run starts new episodes"
            return Finding("note", text)
        env.reset()
        _steps(env, "doctor/before")
        other.restore(env.snapshot())
        if _steps(env, "doctor/after") != _steps(other, "doctor/after"):
            return Finding("fail", "restored from a snapshot it goes on otherwise")
        return Finding("ok", "restored from a snapshot it goes on to the bit")


def _steps(env: VectorEnv, stream: str) -> list[bytes]:
    rng = generator(0, stream)
    return [_shown(env.step(env.uniform(rng))) for _ in range(SNAPSHOT_STEPS)]


def _shown(step: Step) -> bytes:
    return step.obs.tobytes() + step.reward.tobytes() + step.done.tobytes()


def _walk(env: VectorEnv) -> _Trace:
    rng = generator(0, "doctor/act")  # the same actions whatever the environment's seed
    trace = [env.reset().tobytes()]
    ends = cuts = 0
    magnitude = 0.0
    for _ in range(STEPS):
        step: Step = env.step(env.uniform(rng))
        trace.append(_shown(step))
        ends += int(step.terminated.sum())
        cuts += int((step.done & ~step.terminated).sum())
        magnitude = max(magnitude, float(np.abs(step.reward).max()))
    obs, action = env.observation, env.action
    text = (
        f"observation {obs.kind} {obs.shape} {obs.dtype}, action {action.kind} {action.sizes}"
    )
    return _Trace(text, trace, ends, cuts, magnitude)


def _is_own(config: EnvConfig) -> bool:
    """Atari and Procgen are environments of ours, with limits of their own."""
    return (config.id or "").startswith((ATARI, PROCGEN))


def _episodes(seen: _Trace, *, limited: bool) -> Iterator[Finding]:
    yield Finding("ok", f"agents took {STEPS} random steps; all numbers finite")
    if seen.ends + seen.cuts == 0:
        fix = "" if limited else "; set env.max_episode_steps if none ever does"
        yield Finding("note", f"no episode ended in {STEPS} steps{fix}")
    else:
        yield Finding("ok", f"episodes end: {seen.ends} terminated, {seen.cuts} truncated")
    if seen.magnitude == 0.0:
        yield Finding("note", "every reward was zero")


def _dtype(config: EnvConfig, allow_import: bool) -> Iterator[Finding]:
    if _is_own(config):
        return
    source = factory(config, allow_import=allow_import)
    if isinstance(source, gymnasium.vector.VectorEnv) or source is None:
        return
    env: gymnasium.Env[Any, Any] = source()
    try:
        obs, _ = env.reset(seed=0)
        if env.observation_space.contains(obs):
            yield Finding("ok", "observations lie in the observation space")
        else:
            text = f"the first observation is not in {type(env.observation_space).__name__}"
            yield Finding("note", f"{text}: check its shape, dtype and bounds")
    finally:
        env.close()
