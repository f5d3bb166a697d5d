"""An arm's configuration at each scale: the paper's, the proxy's, one that takes seconds."""

from typing import Any

from dna.config import Config
from dna.config.overrides import at, tweak, without
from dna.config.presets import family, preset
from dna.paper.experiments.plan import Arm, Scale

#: What a family needs less of in short runs: 256 agents of Procgen fill rollouts of 65,536.
SMALLER: dict[str, dict[str, Any]] = {"procgen": {"agents": 32}}
#: Rollouts of a smoke run: 16 steps of 8 agents.
HORIZON, AGENTS = 16, 8


def configure(arm: Arm, env: str, scale: Scale, interactions: int) -> Config:
    """What an arm trains with in this environment."""
    name = family(env)
    proxy = name.startswith("minatar")
    changes: dict[str, Any] = dict(arm.changes) | dict(arm.small if proxy else arm.paper)
    # At its own size an arm is the paper's preset; elsewhere its algorithm's in that family.
    config = preset(f"{name}.{arm.algo}" if proxy else arm.preset)
    if arm.without is not None:
        config = without(config, arm.without)
    if scale == "small":
        changes = SMALLER.get(name, {}) | changes | dict(arm.shortened)
    if scale == "smoke":
        config = shrunk(tweak(config, **changes))
        changes = {}
    return tweak(config, **changes | {"env.id": env, "interactions": interactions})


def shrunk(config: Config) -> Config:
    """The same algorithm on rollouts of a hundred rows, mini-batches in proportion."""
    horizon, agents = min(HORIZON, config.horizon), min(AGENTS, config.agents)
    if config.agents == 1:
        horizon = HORIZON * AGENTS
    batch, whole = horizon * agents, config.batch
    changes: dict[str, Any] = {"horizon": horizon, "agents": agents, "warm_up": None}
    for phase in config.phases:
        wanted = max(2, phase.sgd.minibatch * batch // whole)
        changes[f"{phase.name}.sgd.minibatch"] = _divisor(batch, wanted)
        if phase.reads == "replay":
            changes[f"{phase.name}.every"] = 2
    if config.noise is not None:
        changes |= {"noise.b_small": 8, "noise.samples": 4, "noise.every": 1}
        changes |= {"noise.b_big": None}
    return tweak(config, **changes)


def _divisor(batch: int, wanted: int) -> int:
    return max(n for n in range(2, max(wanted, 2) + 1) if batch % n == 0)


def passes(config: Config) -> float:
    """Walks over a rollout's rows: what the cost of an iteration grows with."""
    epochs = sum(
        at(config, f"{phase.name}.sgd.epochs") * (2 if phase.trains == "both" else 1)
        for phase in config.phases
    )
    return float(epochs) + 2.0  # acting and V of all states


def noise_passes(config: Config) -> float:
    """What measuring the noise adds to them: a large and many small batches of every phase."""
    noise = config.noise
    if noise is None:
        return 0.0
    rows = (noise.b_big or config.batch) + noise.samples * noise.b_small
    return len(config.phases) * rows / config.batch / noise.every
