"""Compiled optimizer steps for small networks, and the choice between compiled and eager.

An eager step of a small network spends almost all of its time on dispatch: of about a
millisecond, only a tenth is arithmetic. `CompiledStep` combines the loss, gradient, clipping
and Adam update of a few mini-batches into one function of flat vectors and compiles it with
`torch.compile`. The result equals that of the eager step up to floating-point rounding, and is
bit-reproducible. It needs a C++ compiler at run time. `make_steps` compiles if a run is long
enough to recoup the compilation time.
"""

import functools
import math
import os
import shlex
import shutil
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dna.algorithm.engine import EagerStep, PhaseStep, Probe
from dna.algorithm.phases import Metrics, is_mean_over_rows, loss
from dna.common.errors import BadInput
from dna.common.timing import Clock
from dna.config import AnyPhase, Config
from dna.distributed.launch import check_divides
from dna.distributed.world import SOLO, World
from dna.networks.batch import Batch, Minibatch
from dna.networks.encoders import Pieces
from dna.networks.networks import FlatWeights, Networks

#: Adam's decay rates, the defaults of `torch.optim.Adam`.
BETA1 = 0.9
BETA2 = 0.999
#: Steps from which compiling pays: it takes about 20 s, and saves up to 1 ms per step.
WORTHWHILE = 40_000
#: Most mini-batches in one compiled call: more are hardly faster, but take longer to compile.
MOST_STEPS = 4
#: Number of weights from which arithmetic, not dispatch, takes the time.
SMALL = 200_000


class CompiledStep:
    """Optimizer steps on a few mini-batches in one call of compiled code."""

    def __init__(
        self,
        phase: AnyPhase,
        networks: Networks,
        weights: FlatWeights,
        steps: int,
        clock: Clock | None = None,
    ) -> None:
        self.eager = EagerStep(phase, networks, weights, clock=clock)
        self.clock = self.eager.clock
        self.optimizer = self.eager.optimizer
        self.probe: Probe | None = None
        self.world = self.eager.world  # a single rank: several ranks take eager steps
        self.phase = phase
        self.weights = weights
        self.minibatches = steps
        self.theta = self.eager.vector.detach()  # the same tensor in every call
        self.objective = _Objective(phase, networks)
        self.on_demand: Any = torch.compile(
            _with_own_code(self._steps),
            fullgraph=True,
            dynamic=False,
            options=_options(networks.device),
        )
        self.compiled: Callable[..., Metrics] | None = None
        self.failed = False

    @property
    def beside(self) -> bool:
        """Whether another phase may run meanwhile: only once this one is compiled.

        On a GPU never: calls through torch.compile share a counter of all threads.
        """
        return self.compiled is not None and self.theta.device.type == "cpu"

    def __call__(self, rows: Minibatch, progress: float) -> Metrics:
        """Take one step per mini-batch in the rows; return the mean of the steps' metrics."""
        with self.clock("gather"):
            data = rows.gather()
        if self.compiled is None and not self.failed:
            self._compile(data, progress)
        if self.compiled is None:
            return self._eager_steps(rows, progress)
        assert len(data["weight"]) == self.minibatches * self.phase.sgd.minibatch
        with torch.no_grad():
            metrics = self.compiled(self._state(), *self._scalars(progress), data)
        if self.theta.device.type == "cuda":  # CUDA graphs reuse the memory of results
            metrics = {name: value.clone() for name, value in metrics.items()}
        return metrics

    def _compile(self, data: Batch, progress: float) -> None:
        """Compile, call once and undo that call; if it fails, warn and step eagerly."""
        state = self._state()
        before = [tensor.clone() for tensor in state]
        arguments = (state, *self._scalars(progress), data)
        try:
            with self.clock("compile"), warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # torch warns about its own internals
                compiled = self._compiled_for(arguments)
                compiled(*arguments)
            self.compiled = compiled
        except Exception as error:
            self.failed = True
            _warn_of_failure(self.phase, error, stacklevel=3)
        finally:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

    def _compiled_for(self, arguments: tuple[Any, ...]) -> Callable[..., Metrics]:
        """Return a compiled function of arguments of these shapes, which it does not check.

        Compiled ahead of time, a call takes two thirds of the time of one through
        torch.compile, and threads may call several functions at once. Not so on a GPU, where
        torch.compile manages CUDA graphs.
        """
        if self.theta.device.type != "cpu":
            function: Callable[..., Metrics] = self.on_demand
            return function
        compiled = self.on_demand.aot_compile((arguments, {}))
        compiled.disable_guard_check()
        return functools.partial(compiled, self)

    def _eager_steps(self, rows: Minibatch, progress: float) -> Metrics:
        sums: Metrics = {}
        for mb in rows.pieces(self.phase.sgd.minibatch):
            for name, value in self.eager(mb, progress).items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach() / self.minibatches
        return sums

    def _state(self) -> list[Tensor]:
        """Return θ, Adam's moments and its step count, which a call updates in place."""
        theta = self.theta
        moments = self.optimizer.state[self.eager.vector]
        if not moments:
            moments["step"] = torch.zeros((), dtype=torch.float32, device=theta.device)
            moments["exp_avg"] = torch.zeros_like(theta)
            moments["exp_avg_sq"] = torch.zeros_like(theta)
        state = [theta, moments["exp_avg"], moments["exp_avg_sq"], moments["step"]]
        if (
            theta.device.type == "cuda" and self.compiled is None
        ):  # CUDA graphs replay addresses
            for tensor in state:
                torch._dynamo.mark_static_address(tensor)
        return state

    def _scalars(self, progress: float) -> tuple[Tensor, Tensor]:
        """Return learning rate and progress as tensors: new numbers would cause recompiling."""
        device = self.eager.vector.device
        rate = self.optimizer.param_groups[0]["lr"]
        return torch.tensor(rate, device=device), torch.tensor(progress, device=device)

    def _steps(
        self, state: Sequence[Tensor], rate: Tensor, progress: Tensor, data: Batch
    ) -> Metrics:
        """Clip and apply Adam for each mini-batch; this is the function that is compiled."""
        theta, exp_avg, exp_avg_sq, count = state
        sums: Metrics = {}
        for mb in _pieces(data, self.phase.sgd.minibatch):
            gradient, metrics = self._gradient(theta, mb, progress)
            norm = torch.linalg.vector_norm(gradient)
            if self.phase.sgd.max_gradient_norm is not None:
                limit = self.phase.sgd.max_gradient_norm
                gradient = gradient * (limit / (norm + 1e-6)).clamp(max=1.0)
            count.add_(1)
            exp_avg.lerp_(gradient, 1 - BETA1)
            exp_avg_sq.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            correction1 = 1 - BETA1**count
            correction2 = 1 - BETA2**count
            scale = exp_avg_sq.sqrt() / correction2.sqrt() + self.phase.sgd.adam_eps
            theta.sub_(rate / correction1 * (exp_avg / scale))
            for name, value in (metrics | {"gradient_norm": norm}).items():
                part = value / self.minibatches
                sums[name] = sums[name] + part if name in sums else part
        return sums

    def _gradient(self, theta: Tensor, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        parameters = self.weights.parameters_of(theta, self.phase.trains)
        gradient = torch.func.grad(self._objective, has_aux=True)
        gradients, metrics = gradient(parameters, mb, progress)
        return self.weights.vector_of(gradients), metrics

    def _objective(self, weights: Batch, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        named = {f"networks.{name}": weight for name, weight in weights.items()}
        total, metrics = torch.func.functional_call(self.objective, named, (mb, progress))
        return total, metrics


class _Objective(nn.Module):
    """A phase's loss as a module, so that `functional_call` can replace its weights."""

    def __init__(self, phase: AnyPhase, networks: Networks) -> None:
        super().__init__()
        self.phase = phase
        self.networks = networks
        self.loss = loss.dispatch(type(phase))  # resolved here: the compiler cannot trace it

    def forward(self, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        """Compute the loss and its metrics."""
        result: tuple[Tensor, Metrics] = self.loss(self.phase, self.networks, mb, progress)
        return result


def _warn_of_failure(phase: AnyPhase, error: Exception, stacklevel: int) -> None:
    lines = [line for line in str(error).splitlines() if line.strip()]
    reason = " ".join(lines[:2]) or type(error).__name__
    text = f"{phase.name}: compiling failed, using eager steps ({reason[:120]})"
    warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)


def _with_own_code(method: Any) -> Any:
    """Return the method with a copy of its code object.

    torch.compile limits recompilations per code object (to eight), which the phases and runs
    of one process would otherwise use up together.
    """
    f = method.__func__
    copy = types.FunctionType(f.__code__.replace(), f.__globals__, f.__name__, f.__defaults__)
    return types.MethodType(copy, method.__self__)


def _pieces(data: Batch, rows: int) -> list[Batch]:
    """Split a batch into mini-batches of so many rows."""
    starts = range(0, len(data["weight"]), rows)
    return [{name: c[start : start + rows] for name, c in data.items()} for start in starts]


def _options(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return {"triton.cudagraphs": True}
    # A C++ wrapper halves the cost of a call.
    return {"cpp_wrapper": True}


def make_steps(
    config: Config,
    networks: Networks,
    weights: FlatWeights,
    compile: Literal["auto", "off", "on"] = "auto",
    world: World = SOLO,
    pieces: Pieces | None = None,
) -> dict[str, PhaseStep]:
    """Make a step with its own Adam for each phase (section 4.4).

    `pieces`: those into which mini-batches are cut; None leaves them whole.
    """
    # Cached: called for every phase, but must warn only once.
    can_compile = functools.cache(functools.partial(_can_compile, world))
    steps: dict[str, PhaseStep] = {}
    for phase in config.phases:
        piece = pieces and pieces.of(phase.sgd.minibatch)
        if compile == "off" or (
            compile == "auto" and not (pays(config, phase, networks) and can_compile())
        ):
            steps[phase.name] = EagerStep(phase, networks, weights, piece, world=world)
        else:
            minibatches = config.batch * _rollouts(phase) // phase.sgd.minibatch
            per_call = steps_per_call(minibatches)
            steps[phase.name] = CompiledStep(phase, networks, weights, per_call)
    return steps


def compiled_phases(steps: Mapping[str, PhaseStep]) -> list[str]:
    """Return the names of phases whose steps are, or will be, compiled."""
    return [
        name
        for name, step in steps.items()
        if isinstance(step, CompiledStep) and not step.failed
    ]


def pays(config: Config, phase: AnyPhase, networks: Networks) -> bool:
    """Return whether the run is long enough for compiling the phase's step to save time."""
    parameters = sum(p.numel() for p in networks.parameters())
    small = networks.obs.kind == "vector" and parameters < SMALL
    iterations = math.ceil(config.interactions / config.batch) // phase.every
    steps = config.batch * _rollouts(phase) // phase.sgd.minibatch * phase.sgd.epochs
    # Losses of users' phases may do what the compiler cannot trace.
    known = is_mean_over_rows.dispatch(type(phase)) is not is_mean_over_rows.dispatch(object)
    return small and known and iterations * steps >= WORTHWHILE


def _can_compile(world: World) -> bool:
    """Return whether steps can be compiled here; warn if not."""
    if world.size > 1:
        text = "steps are not compiled on several ranks: using eager steps"
    elif not has_compiler():
        text = "no C++ compiler (g++ or clang++) found: using eager steps"
    else:
        return True
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return False


def check_ranks(config: Config, compile: str, world: World) -> None:
    """Refuse settings with which several ranks could not compute exactly what one does."""
    if world.size == 1:
        return
    check_divides(config.agents, world.size)
    for phase in config.phases:
        if not is_mean_over_rows(phase):
            key = f"{phase.name}.normalize_advantage: 'minibatch'"
            what = key if hasattr(phase, "normalize_advantage") else f"{phase.name}: its loss"
            raise BadInput(f"{what} is not a mean over rows, which {world.size} ranks need")
    if config.noise is not None:
        raise BadInput(f"noise: is measured on one rank only, not on {world.size}; remove it")
    if compile == "on":
        raise BadInput(f"--compile on: works on one rank only, not on {world.size}; remove it")


def _rollouts(phase: AnyPhase) -> int:
    """Number of rollouts that the phase learns from at a time."""
    return phase.every if phase.reads == "replay" else 1


def steps_per_call(minibatches: int) -> int:
    """Return the most steps per call that divide an epoch, so that all calls are alike."""
    return max(n for n in range(1, MOST_STEPS + 1) if minibatches % n == 0)


def has_compiler() -> bool:
    """Return whether the C++ compiler that torch would call exists."""
    wanted = shlex.split(os.environ.get("CXX", ""))[:1]
    return any(shutil.which(name) for name in wanted or ["g++", "clang++"])
