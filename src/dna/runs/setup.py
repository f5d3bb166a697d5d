"""Build the parts of a run: environments, networks, learner, device."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dna.algorithm.compiled_step import compiled_phases, make_steps
from dna.algorithm.noise_probe import attach
from dna.algorithm.rollout import Replay
from dna.common.errors import BadInput
from dna.common.randomness import integer
from dna.common.timing import Clock
from dna.config import Config, Distil
from dna.distributed.shard import Share
from dna.distributed.world import SOLO, World
from dna.envs import Making, Source, VectorEnv, make
from dna.networks.encoders import NATURE_MINIMUM
from dna.networks.networks import FlatWeights, Networks

#: Options that a resumed run takes over unless they are given again.
REMEMBERED = ("device", "threads", "compile", "checkpoint_every", "verify")


@dataclass(frozen=True)
class How:
    """How to execute a run, as opposed to what it computes.

    Another number of torch threads may still change the last bits of the results.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None  # torch; None: one for small networks, else every core
    env_threads: int | None = None  # None: one; Atari: 4 per core; Procgen: every core
    checkpoint_every: int | None = None  # interactions; None: ten times in the run
    env_timeout: float | None = None  # seconds that a call into the environments may take
    on_hang: Literal["raise", "exit"] = "raise"  # beyond that; "exit" ends the whole process
    allow_import: bool = False
    restart: bool = False  # discard what the folder holds
    tensorboard: bool = True
    compile: Literal["auto", "off", "on"] = "auto"  # steps of small networks
    verify: bool = True  # after checkpoints, check that a resume would be exact
    world: World = SOLO  # the ranks that share the run: `dna.distributed.world.join`

    def asked(self) -> dict[str, Any]:
        """Return the options that `dna resume` takes over."""
        return {name: getattr(self, name) for name in REMEMBERED}


class Learner:
    """What learns from rollouts: a step with an optimizer per phase, and PPG's replay."""

    def __init__(
        self, config: Config, seed: int, networks: Networks, how: How, clock: Clock
    ) -> None:
        self.weights = FlatWeights(networks)
        self.steps = make_steps(config, networks, self.weights, how.compile, clock, how.world)
        self.probe = attach(config, networks, seed, self.steps, clock)  # of the noise scale
        self.replay = Replay(config.replay_length)

    @property
    def optimizers(self) -> dict[str, torch.optim.Adam]:
        """The optimizer of each phase."""
        return {name: step.optimizer for name, step in self.steps.items()}

    def compiled(self) -> list[str]:
        """Names of the phases whose steps are compiled."""
        return compiled_phases(self.steps)


def build_networks(config: Config, seed: int, env: VectorEnv, device: torch.device) -> Networks:
    """Build networks whose initial weights depend on the seed alone."""
    for phase in config.phases:
        if phase.kind == "distil":
            _check_constraint(phase, env.action.kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "weights"))
        return Networks(config, env.observation, env.action).to(device)


def _check_constraint(phase: Distil, kind: str) -> None:
    """Refuse a constraint that is defined for another kind of action."""
    made_for = {"logit_mse": "categorical"}.get(phase.constraint, "gaussian")
    if phase.constraint != "kl" and kind != made_for:
        what = {"gaussian": "real-valued", "categorical": "discrete"}.get(kind, kind)
        raise BadInput(
            f"{phase.name}.constraint: '{phase.constraint}' is not for {what} actions; use kl"
        )


def default_threads(env: VectorEnv, ranks: int = 1) -> int:
    """Return the number of torch threads: all cores of this rank, or one.

    Small networks get one: they lose more to synchronizing threads than they gain. `ranks`
    share the cores.
    """
    large = any(min(shape[:2]) >= NATURE_MINIMUM for shape in env.observation.images)
    return max((os.cpu_count() or 1) // ranks, 1) if large else 1


def tune(how: How, env: VectorEnv) -> None:
    """Set up torch's threads and the memory allocator of this process."""
    torch.set_num_threads(how.threads or default_threads(env, how.world.local_size))
    if env.observation.images:
        keep_memory()


def keep_memory() -> None:
    """Ask glibc to keep large freed blocks instead of returning them to the system.

    A batch of images needs temporaries of tens of megabytes; mapped anew at every use, their
    page faults take longer than the arithmetic. Elsewhere this does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    no_trim, pad, no_mmap = -1, -2, -4  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX
    mallopt(no_trim, 2**31 - 1)
    mallopt(pad, 2**26)
    mallopt(no_mmap, 0)


def build_environments(
    config: Config, seed: int, resumes: int, how: How, source: Source
) -> VectorEnv:
    """Build this rank's environments."""
    share = Share(how.world, config.agents)
    seeds = tuple(integer(seed, "env", agent, resumes) for agent in range(config.agents))
    making = Making(
        share.each,
        seeds[share.own],
        how.env_threads,
        how.allow_import,
        neighbors=how.world.local_size,
    )
    env = make(config.env, making, source)
    if env.agents != share.each:
        env.close()
        ranks = f" of {how.world.size} ranks" if how.world.size > 1 else ""
        raise BadInput(
            f"agents: given {config.agents}{ranks}, but the VectorEnv has {env.agents}"
        )
    return env


def choose_device(name: str, world: World = SOLO) -> torch.device:
    """Return the device of this rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no GPU here; use --device cpu")
    if name == "cuda" and world.size > 1:
        return torch.device("cuda", world.local_rank % torch.cuda.device_count())
    return torch.device(name)
