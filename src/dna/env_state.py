"""The environments' part of a checkpoint: saved where it can be, and said where it cannot."""

from collections.abc import Mapping

from dna.envs import Array, VectorEnv
from dna.errors import EnvironmentFailure, Unsaveable
from dna.rollout import Collector


def environment_state(env: VectorEnv) -> Mapping[str, Array]:
    """Their state; nothing where it cannot be written down, be it ever or just now.

    That is no reason to save nothing: whoever goes on from here begins new episodes, is told
    so, and finds it in `machine.json`.
    """
    try:
        return env.snapshot()
    except Unsaveable:
        return {}


def restore_environments(collector: Collector, state: Mapping[str, Array]) -> str | None:
    """Put it back; else why the environments were restarted instead."""
    if not state:
        reason = collector.env.inexact or "it was saved without its environments"
        return f"environments were restarted ({reason})"
    try:
        collector.env.restore(state)
    except EnvironmentFailure as error:
        collector.restart()
        return f"environments were restarted ({error})"
    return None
