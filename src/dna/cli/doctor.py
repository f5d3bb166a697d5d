"""`dna doctor`: what is installed, and whether an environment works for training."""

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dna.cli.options import AllowImport
from dna.common.errors import BadInput, DnaError, EnvironmentFailure
from dna.config import EnvConfig
from dna.config.environments import ATARI, PROCGEN
from dna.config.presets import for_environment
from dna.distributed.launch import launched

if TYPE_CHECKING:
    from dna.envs import Step, VectorEnv

#: Extra → its modules and what they are for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "minatar": (("minatar",), "MinAtar's five games"),
    "classic": (("pygame", "Box2D"), "rendering of classic control, LunarLander"),
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
#: Steps after which snapshots are taken of environments written in Python, and of others.
MOMENTS = (1, 40, 200)
ONE_MOMENT = (50,)
#: Steps that are compared after each snapshot.
SNAPSHOT_STEPS = 50
MARKS = {"ok": "ok  ", "note": "note", "fail": "FAIL"}


@dataclass(frozen=True)
class Check:
    """The result of one check: one line of the report."""

    level: Literal["ok", "note", "fail"]
    text: str


def doctor(
    env_id: Annotated[
        str | None, typer.Argument(metavar="[ENV_ID]", help="Environment to check")
    ] = None,
    allow_import: AllowImport = False,
) -> None:
    """Report installed and missing packages; with ENV_ID, check that environment.

    Examples:

      dna doctor

      dna doctor my_package:make_env --allow-import
    """
    if env_id is None:
        checks = installation()
    else:
        checks = conformance(env_id, allow_import=allow_import)
    failed = False
    for check in checks:
        typer.echo(f"{MARKS[check.level]}  {check.text}")
        failed = failed or check.level == "fail"
    if failed:
        raise EnvironmentFailure(f"{env_id}: does not meet the requirements (see FAIL above)")


def installation() -> Iterator[Check]:
    """Check the versions of packages and the optional extras."""
    from dna.distributed.world import backends
    from dna.runs.reproducibility import versions

    known = {name: version for name, version in versions().items() if version}
    yield Check("ok", ", ".join(f"{name} {version}" for name, version in known.items()))
    transports = ", ".join(backends()) or "none"
    yield Check(
        "ok",
        f"ranks: {launched().size} (torchrun starts more); available backends: {transports}",
    )
    for extra, (modules, what) in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            fix = f"pip install 'ppo-dna[{extra}]'"
            yield Check("note", f"{what}: {', '.join(missing)} missing; {fix}")
            continue
        yield Check("ok", f"{what}: installed")
        if extra == "procgen":
            yield _qt()


def _qt() -> Check:
    from dna.envs.procgen import load_qt

    try:
        return Check("ok", f"Qt 5 for Procgen: {load_qt()}")
    except BadInput as error:
        return Check("note", str(error))


def conformance(env_id: str, *, allow_import: bool = False) -> Iterator[Check]:
    """Check what training relies on, with the environment set up as `dna train` does it.

    The package's own environments pass the same checks.
    """
    config = for_environment(env_id).env
    try:
        first = _play(config, 0, allow_import)
        yield Check("ok", f"spaces: {first.spaces}")
        yield from _check_episodes(first, has_limit=_is_own(config))
        again = _play(config, 0, allow_import)
        other = _play(config, 1, allow_import)
        snapshot = [*_check_snapshots(config, allow_import)]
    except BadInput:
        raise  # the environment does not exist or cannot be created
    except DnaError as error:
        yield Check("fail", str(error))
        return
    if first.trace != again.trace:
        yield Check("fail", "the same seed and actions gave other observations or rewards")
    else:
        yield Check("ok", "the same seed and actions give the same episode")
    if first.trace == other.trace:
        yield Check("note", "seeds change nothing: reset(seed=…) may be ignored")
    else:
        yield Check("ok", "another seed gives another episode")
    yield from snapshot
    yield from _check_observation_space(config, allow_import)


@dataclass(frozen=True)
class _Played:
    """What an environment did under `STEPS` random actions."""

    spaces: str
    trace: list[bytes]
    terminated: int
    truncated: int
    largest_reward: float


def _build(config: EnvConfig, seed: int, allow_import: bool) -> "VectorEnv":
    from dna.common.randomness import integer
    from dna.envs import Making, make

    # Atari runs in worker processes, as in training.
    agents, threads = (8, 2) if config.atari is not None else (AGENTS, 1)
    seeds = tuple(integer(seed, "doctor/env", agent) for agent in range(agents))
    return make(config, Making(agents, seeds, threads, allow_import))


def _play(config: EnvConfig, seed: int, allow_import: bool) -> _Played:
    """Take the same random actions whatever the seed of the environment."""
    with closing(_build(config, seed, allow_import)) as env:
        trace = [env.reset().tobytes()]
        terminated = 0
        truncated = 0
        largest = 0.0
        for step in _random_steps(env, "doctor/act", STEPS):
            trace.append(_bytes(step))
            terminated += int(step.terminated.sum())
            truncated += int((step.done & ~step.terminated).sum())
            largest = max(largest, float(abs(step.reward).max()))
        obs, action = env.observation, env.action
        spaces = (
            f"observation {obs.kind} {obs.shape} {obs.dtype}, "
            f"action {action.kind} {action.sizes}"
        )
    return _Played(spaces, trace, terminated, truncated, largest)


def _random_steps(env: "VectorEnv", stream: str, count: int) -> Iterator["Step"]:
    from dna.common.randomness import generator

    rng = generator(0, stream)
    for _ in range(count):
        yield env.step(env.uniform(rng))


def _bytes(step: "Step") -> bytes:
    return step.obs.tobytes() + step.reward.tobytes() + step.done.tobytes()


def _check_snapshots(config: EnvConfig, allow_import: bool) -> Iterator[Check]:
    """Check that environments of another seed continue identically from snapshots."""
    from dna.common.errors import Unsaveable
    from dna.envs.gym import GymVector
    from dna.envs.state.program_state import ProgramState

    with closing(_build(config, 0, allow_import)) as env:
        if env.inexact is not None:
            yield Check("note", f"{env.inexact}: a resumed run starts new episodes")
            return
        env.reset()
        python = isinstance(env, GymVector) and not env.mujoco
        program = ProgramState(env.envs[0]) if isinstance(env, GymVector) and python else None
        taken = 0
        found = None
        for moment in MOMENTS if python else ONE_MOMENT:
            for _ in _random_steps(env, f"doctor/before {taken}", moment - taken):
                pass
            try:
                found = _check_snapshot(config, allow_import, env, moment)
            except Unsaveable as error:
                found = Check("note", f"after {moment} steps: {error}")
            if found is not None:
                break
            taken = moment + SNAPSHOT_STEPS
        yield found or Check("ok", "continues bit for bit after a snapshot was restored")
        for name in program.changed() if program is not None else []:
            yield Check("note", f"changes {name}, which is not saved: resumes are not exact")


def _check_snapshot(
    config: EnvConfig, allow_import: bool, env: "VectorEnv", moment: int
) -> Check | None:
    """Continue from a snapshot in new environments; None if nothing differs."""
    from dna.envs.state.comparison import difference

    state = env.snapshot()
    with closing(_build(config, 1 + moment, allow_import)) as other:
        try:
            other.restore(state)
        except EnvironmentFailure as error:
            return Check(
                "note",
                f"cannot be restored as it is after {moment} steps: a resumed run starts new "
                f"episodes ({error})",
            )
        if place := difference(state, other.snapshot()):
            return Check("fail", f"restored from a snapshot, it differs ({place})")
        stream = f"doctor/after {moment}"
        expected = [_bytes(step) for step in _random_steps(env, stream, SNAPSHOT_STEPS)]
        restored = [_bytes(step) for step in _random_steps(other, stream, SNAPSHOT_STEPS)]
    if expected != restored:
        return Check("fail", "continues differently after a snapshot was restored")
    return None


def _is_own(config: EnvConfig) -> bool:
    """Whether this package implements the environment, with its own episode limit."""
    return (config.id or "").startswith((ATARI, PROCGEN))


def _check_episodes(played: _Played, *, has_limit: bool) -> Iterator[Check]:
    yield Check("ok", f"{STEPS} random steps per agent; all numbers finite")
    if played.terminated + played.truncated == 0:
        fix = "" if has_limit else "; set env.max_episode_steps if none ever does"
        yield Check("note", f"no episode ended in {STEPS} steps{fix}")
    else:
        yield Check(
            "ok",
            f"episodes end: {played.terminated} terminated, {played.truncated} truncated",
        )
    if played.largest_reward == 0.0:
        yield Check("note", "every reward was zero")


def _check_observation_space(config: EnvConfig, allow_import: bool) -> Iterator[Check]:
    import gymnasium

    from dna.envs.factory import factory

    if _is_own(config):
        return
    source = factory(config, allow_import=allow_import)
    if isinstance(source, gymnasium.vector.VectorEnv) or source is None:
        return
    env: gymnasium.Env[Any, Any] = source()
    try:
        obs, _ = env.reset(seed=0)
        if env.observation_space.contains(obs):
            yield Check("ok", "observations lie in the observation space")
        else:
            space = type(env.observation_space).__name__
            yield Check(
                "note",
                f"the first observation is not in the {space} space: "
                "check its shape, dtype and bounds",
            )
    finally:
        env.close()
