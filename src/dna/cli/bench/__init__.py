"""Measuring speed: what each family is measured on, and who else does the same work.

Noise of the machine hits everybody alike: contestants are processes that take turns, and what
counts are ratios within a turn.
"""

from dataclasses import dataclass

from dna.config import SGD, Config, EnvConfig, Joint, Network, Policy, Returns, Value
from dna.config.overrides import tweak
from dna.config.presets import preset

FAMILIES = ("atari", "mujoco", "minatar", "procgen")
PEERS = ("sb3", "cleanrl-style", "sbx")


@dataclass(frozen=True)
class Case:
    """One configuration to be measured."""

    name: str
    config: Config
    iterations: int  # of one turn, a few seconds
    peers: tuple[str, ...] = ()  # who can do the same work
    hours: float | None = None  # of a GPU in the paper (table 5)
    beside: tuple[str, ...] = ()  # peers on the first case's work that it is set beside


def cases(family: str) -> list[Case]:
    """What is measured of a family; the first is what peers are compared on."""
    return {
        "atari": _atari,
        "mujoco": _mujoco,
        "minatar": _minatar,
        "procgen": _procgen,
    }[family]()


def _brief(name: str, env_id: str, **changes: object) -> Config:
    """A preset without a long warm-up, for this environment."""
    config = tweak(preset(name), **{"env.id": env_id})
    if config.warm_up is not None:
        config = tweak(config, **{"warm_up.low": 0, "warm_up.high": 8})
    return tweak(config, **changes)


def _atari() -> list[Case]:
    game = "ALE/Breakout-v5"
    acting = {"returns.values": "acting"}
    # A replay of one short rollout: per interaction the auxiliary phase does the same work.
    ppg = _brief("tuned.ppg", game, **{"aux.every": 1, "horizon": 32})
    return [
        # As the peers do it: V comes from the pass that acts.
        Case("PPO (1x)", _brief("tuned.ppo_1x", game, **acting), 1, ("sb3", "cleanrl-style")),
        Case("DNA", _brief("tuned.dna", game), 1, hours=4.0),
        Case("PPO (2x)", _brief("tuned.ppo", game), 1, hours=3.0),
        Case("PPG", ppg, 1, hours=4.5),
        Case("PPO (orig)", _brief("table1.ppo_orig", game), 4, hours=7.5),
    ]


def _mujoco() -> list[Case]:
    task = "HalfCheetah-v5"
    sgd = SGD(epochs=10, minibatch=64, learning_rate=3e-4, max_gradient_norm=0.5)
    # SB3's PPO has a network for π and one for V, so here it is our policy and value phases.
    two = Config(
        env=EnvConfig(id=task),
        phases=(Policy(sgd=sgd, entropy_bonus=0.0), Value(sgd=sgd)),
        returns=Returns(gamma=0.99, lambda_pi=0.95, lambda_v=0.95),
        horizon=2048,
        agents=1,
        interactions=1_000_000,
        network=Network(encoder="mlp", width=64, depth=2, activation="tanh"),
        normalize_observation=None,
        normalize_reward=None,
        warm_up=None,
    )
    one = two.model_copy(update={"phases": (Joint(sgd=sgd, entropy_bonus=0.0),)})
    one = tweak(one, **{"returns.values": "acting"})
    return [
        Case("PPO, two networks", two, 8, ("sb3", "sbx")),
        Case("PPO, one network", one, 8, ("cleanrl-style",)),
        Case("PPO (table 6)", _brief("mujoco.ppo", task), 8),
        Case("DNA (table 6)", _brief("mujoco.dna", task), 4, beside=("sb3", "sbx")),
    ]


def _minatar() -> list[Case]:
    game = "MinAtar/Breakout-v1"
    ppg = _brief("minatar.ppg", game, **{"aux.every": 1})
    return [
        Case("PPO", _brief("minatar.ppo", game, **{"returns.values": "acting"}), 8, ("sb3",)),
        Case("DNA", _brief("minatar.dna", game), 8),
        Case("PPG", ppg, 8),
    ]


def _procgen() -> list[Case]:
    game = "procgen/coinrun"
    # An eighth of the paper's horizon: a turn would take minutes.
    return [
        Case("PPO", _brief("procgen.ppo", game, horizon=32), 1, ("cleanrl-style",)),
        Case("DNA", _brief("procgen.dna", game, horizon=32), 1),
    ]


def work_of(case: Case, family: str, threads: int) -> dict[str, object]:
    """The case as a peer is told of it."""
    sgd = case.config.phases[0].sgd
    return {
        "family": family,
        "env": case.config.env.id,
        "agents": case.config.agents,
        "horizon": case.config.horizon,
        "epochs": sgd.epochs,
        "minibatch": sgd.minibatch,
        "iterations": case.iterations,
        "threads": threads,
    }
