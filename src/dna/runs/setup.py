"""Build the parts of a run: environments, networks, learner, device, threads."""

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from dna.algorithm.compiled_step import compiled_phases, make_steps
from dna.algorithm.engine import EagerStep
from dna.algorithm.noise_probe import attach
from dna.algorithm.phases import can_be_cut
from dna.algorithm.rollout import Replay
from dna.common.errors import BadInput
from dna.common.randomness import integer
from dna.common.threads import Workers, cores
from dna.config import AnyPhase, Config, Distil
from dna.distributed.shard import Share
from dna.distributed.world import SOLO, World
from dna.envs import Making, Source, VectorEnv, make
from dna.envs.specs import ObservationSpec
from dna.networks.encoders import NATURE_MINIMUM, Pieces, pieces_of
from dna.networks.networks import FlatWeights, Networks

#: Options that a resumed run takes over unless they are given again.
REMEMBERED = ("device", "threads", "pieces", "compile", "checkpoint_every", "verify")
#: Pieces of mini-batches of images, for the caches, where threads do not share them.
UNSHARED = Pieces(512, 512, 512)


@dataclass(frozen=True)
class How:
    """How to execute a run, as opposed to what it computes.

    `device`, `compile` and `pieces` may still change the last bits of the results.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None  # None: every core of this rank
    pieces: Literal["fixed", "cores"] = "fixed"  # of mini-batches; "cores": one per thread
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
        self, config: Config, seed: int, networks: Networks, how: How, pieces: Pieces | None
    ) -> None:
        self.weights = FlatWeights(networks)
        self.steps = make_steps(config, networks, self.weights, how.compile, how.world, pieces)
        self.probe = attach(config, networks, seed, self.steps)  # of the noise scale
        self.replay = Replay(config.replay_length)

    def together(self, phases: Sequence[AnyPhase]) -> list[list[AnyPhase]]:
        """Split independent phases into those that run at the same time, where that pays."""
        steps = [self.steps[phase.name] for phase in phases]
        # Ranks must communicate in the same order; the noise probe has one state.
        alone = any(step.world.size > 1 or step.probe for step in steps)
        if alone or not all(step.beside for step in steps):
            return [[phase] for phase in phases]
        return [[*phases]]

    @property
    def optimizers(self) -> dict[str, torch.optim.Adam]:
        """The optimizer of each phase."""
        return {name: step.optimizer for name, step in self.steps.items()}

    def compiled(self) -> list[str]:
        """Names of the phases whose steps are compiled."""
        return compiled_phases(self.steps)

    def pieces(self) -> dict[str, int]:
        """Rows of the pieces of each phase whose mini-batches are cut."""
        steps = self.steps.items()
        eager = {name: step for name, step in steps if isinstance(step, EagerStep)}
        return {name: step.piece for name, step in eager.items() if step.piece < step.rows}


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


def pieces_for(
    how: How, config: Config, obs: ObservationSpec, device: torch.device
) -> Pieces | None:
    """Return the pieces of work that the run's threads share; None leaves it to torch's.

    Results then do not depend on the number of threads, unless there is one piece per thread.
    Torch's threads remain for custom encoders, and for images in phases whose loss cannot be
    computed in pieces. On a GPU there is nothing to share.
    """
    pieces = pieces_of(config.network, obs)
    divisible = not obs.images or all(can_be_cut(phase) for phase in config.phases)
    if pieces is None or device.type != "cpu" or not divisible:
        return None
    if how.pieces == "cores":
        rows = min(phase.sgd.minibatch for phase in config.phases)
        learning, acting = (-(-size // threads_of(how)) for size in (rows, config.agents))
        least, most = min(pieces.least, learning), min(pieces.most, learning)
        return Pieces(least, most, min(pieces.acting, acting))
    return pieces


def threads_of(how: How) -> int:
    """Return the number of threads of a run on this rank."""
    return how.threads or max(cores() // how.world.local_size, 1)


def make_workers(how: How, pieces: Pieces | None) -> Workers:
    """Start the threads that share pieces of work; torch itself uses one thread in each."""
    return Workers(threads_of(how) if pieces else 1, partial(torch.set_num_threads, 1))


def default_threads(env: VectorEnv, ranks: int = 1) -> int:
    """Return the number of torch threads where pieces are not shared: all cores, or one.

    Small networks get one: they lose more to synchronizing threads than they gain. `ranks`
    share the cores.
    """
    large = any(min(shape[:2]) >= NATURE_MINIMUM for shape in env.observation.images)
    return max(cores() // ranks, 1) if large else 1


def tune(how: How, config: Config, env: VectorEnv) -> None:
    """Set up torch's threads and the memory allocator of this process."""
    device = choose_device(how.device, how.world)
    if pieces_for(how, config, env.observation, device):
        torch.set_num_threads(1)
    else:
        torch.set_num_threads(how.threads or default_threads(env, how.world.local_size))
    if env.observation.images:
        keep_memory()


def one_blas_thread() -> AbstractContextManager[object]:
    """Let numpy's linear algebra use one thread in a block: more would change its bits."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


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
