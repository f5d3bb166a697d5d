"""Steps of small networks in machine code made for them: several mini-batches per call.

An eager step of a small network is almost all dispatch: a thousand microseconds of calls
around a hundred of arithmetic. Here loss, gradient, clip and Adam of a few mini-batches are
one function of flat vectors, compiled by `torch.compile`. The result equals the eager step's
up to float rounding, and itself to the bit. Needs a C++ compiler at run time.
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
from dna.networks.batch import Batch
from dna.networks.flat_weights import FlatWeights
from dna.networks.networks import Networks

BETA1, BETA2 = 0.9, 0.999


class CompiledStep:
    """A step that walks a few mini-batches in one call of compiled code."""

    def __init__(
        self,
        phase: AnyPhase,
        networks: Networks,
        weights: FlatWeights,
        steps: int,
        clock: Clock | None = None,
    ) -> None:
        self.eager = EagerStep(phase, networks, weights, clock=clock)
        self.clock, self.optimizer = self.eager.clock, self.eager.optimizer
        self.probe: Probe | None = None
        self.world = self.eager.world  # of one: ranks take plain steps
        self.phase, self.weights, self.minibatches = phase, weights, steps
        self.theta = self.eager.vector.detach()  # one and the same tensor in every call
        self.objective = _Objective(phase, networks)
        self.compiled: Callable[..., Metrics] = torch.compile(
            _of_its_own(self._walk),
            fullgraph=True,
            dynamic=False,
            options=_options(networks.device),
        )
        self.ready = self.failed = False

    def __call__(self, data: Batch, progress: float) -> Metrics:
        """Learn from the rows, a mini-batch after the other."""
        if not self.ready:
            self._warm_up(data, progress)
        return self._plainly(data, progress) if self.failed else self._fast(data, progress)

    def _warm_up(self, data: Batch, progress: float) -> None:
        """Compile, and undo the call; where that fails, say so once and go on without."""
        state = self._state()
        before, self.ready = [tensor.clone() for tensor in state], True
        try:
            with self.clock("compile"), warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # torch's own, of what it is made of
                self.compiled(state, *self._scalars(progress), data)
        except Exception as error:
            self.failed = True
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = " ".join(lines[:2]) or type(error).__name__
            warnings.warn(
                f"{self.phase.name}: not compiled, going on without ({reason[:120]})",
                RuntimeWarning,
                stacklevel=2,
            )
        finally:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

    def _fast(self, data: Batch, progress: float) -> Metrics:
        with torch.no_grad():
            metrics = self.compiled(self._state(), *self._scalars(progress), data)
        if self.eager.vector.device.type == "cuda":  # graphs write every result to one place
            metrics = {name: value.clone() for name, value in metrics.items()}
        return metrics

    def _plainly(self, data: Batch, progress: float) -> Metrics:
        sums: Metrics = {}
        for mb in _pieces(data, self.phase.sgd.minibatch):
            for name, value in self.eager(mb, progress).items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach() / self.minibatches
        return sums

    def _state(self) -> list[Tensor]:
        """θ, Adam's two moments and its count of steps, which the call moves in place."""
        theta, moments = self.theta, self.optimizer.state[self.eager.vector]
        if not moments:
            moments["step"] = torch.zeros((), dtype=torch.float32, device=theta.device)
            moments["exp_avg"] = torch.zeros_like(theta)
            moments["exp_avg_sq"] = torch.zeros_like(theta)
        state = [theta, moments["exp_avg"], moments["exp_avg_sq"], moments["step"]]
        if theta.device.type == "cuda" and not self.ready:  # graphs replay addresses
            for tensor in state:
                torch._dynamo.mark_static_address(tensor)
        return state

    def _scalars(self, progress: float) -> tuple[Tensor, Tensor]:
        """Tensors, because a changed number would be compiled anew."""
        device = self.eager.vector.device
        rate = self.optimizer.param_groups[0]["lr"]
        return torch.tensor(rate, device=device), torch.tensor(progress, device=device)

    def _walk(
        self, state: Sequence[Tensor], rate: Tensor, progress: Tensor, data: Batch
    ) -> Metrics:
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
            first, second = 1 - BETA1**count, 1 - BETA2**count
            scale = exp_avg_sq.sqrt() / second.sqrt() + self.phase.sgd.adam_eps
            theta.sub_(rate / first * (exp_avg / scale))
            for name, value in (metrics | {"gradient_norm": norm}).items():
                part = value / self.minibatches
                sums[name] = sums[name] + part if name in sums else part
        return sums

    def _gradient(self, theta: Tensor, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        cut = self.weights.parameters_of(theta, self.phase.trains)
        gradient = torch.func.grad(self._objective, has_aux=True)
        gradients, metrics = gradient(cut, mb, progress)
        return self.weights.vector_of(gradients), metrics

    def _objective(self, weights: Batch, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        named = {f"networks.{name}": weight for name, weight in weights.items()}
        total, metrics = torch.func.functional_call(self.objective, named, (mb, progress))
        return total, metrics


class _Objective(nn.Module):
    """A phase's loss as a module, so that its weights can be swapped for others."""

    def __init__(self, phase: AnyPhase, networks: Networks) -> None:
        super().__init__()
        self.phase, self.networks = phase, networks
        self.loss = loss.dispatch(type(phase))  # dispatched here: the compiler cannot

    def forward(self, mb: Batch, progress: Tensor) -> tuple[Tensor, Metrics]:
        """The loss and its metrics."""
        result: tuple[Tensor, Metrics] = self.loss(self.phase, self.networks, mb, progress)
        return result


def _of_its_own(method: Any) -> Any:
    """The same method from a copy of its code.

    The compiler counts what it made of a piece of code, and gives up at the ninth: phases and
    runs of one process must not count together.
    """
    f = method.__func__
    copy = types.FunctionType(f.__code__.replace(), f.__globals__, f.__name__, f.__defaults__)
    return types.MethodType(copy, method.__self__)


def _pieces(data: Batch, rows: int) -> list[Batch]:
    starts = range(0, len(data["weight"]), rows)
    return [{name: c[start : start + rows] for name, c in data.items()} for start in starts]


def _options(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return {"triton.cudagraphs": True}
    # A wrapper in C++ halves the cost of a call.
    return {"cpp_wrapper": True}


#: A network's compilation takes about twenty seconds, which a step gives back by a
#: millisecond at a time.
WORTHWHILE = 40_000
#: Mini-batches in one compiled call: more are hardly faster, but take longer to compile.
MOST_STEPS = 4
#: Rows of images whose activations stay in the caches and in memory that is mapped already.
MICRO = 512
#: Weights beyond which arithmetic, not dispatch, takes the time.
SMALL = 200_000


def make_steps(
    config: Config,
    networks: Networks,
    weights: FlatWeights,
    compile: Literal["auto", "off", "on"] = "auto",
    clock: Clock | None = None,
    world: World = SOLO,
) -> dict[str, PhaseStep]:
    """One step, with an Adam of its own, for each phase (section 4.4)."""
    able = functools.cache(_able)  # asked for every phase, said once
    if world.size > 1:
        able = functools.cache(_not_with_ranks)
    steps: dict[str, PhaseStep] = {}
    for phase in config.phases:
        if compile == "on" or (compile == "auto" and pays(config, phase, networks) and able()):
            whole = config.batch * _rollouts(phase) // phase.sgd.minibatch
            walked = steps_per_call(whole)
            steps[phase.name] = CompiledStep(phase, networks, weights, walked, clock)
        else:
            micro = MICRO if networks.obs.images else None
            steps[phase.name] = EagerStep(phase, networks, weights, micro, clock, world)
    return steps


def compiled_phases(steps: Mapping[str, PhaseStep]) -> list[str]:
    """Those whose steps are compiled, or are going to be."""
    return [
        n for n, step in steps.items() if isinstance(step, CompiledStep) and not step.failed
    ]


def pays(config: Config, phase: AnyPhase, networks: Networks) -> bool:
    """Whether a run of this length is over sooner with a compiled step."""
    small = (
        networks.obs.kind == "vector" and sum(p.numel() for p in networks.parameters()) < SMALL
    )
    iterations = math.ceil(config.interactions / config.batch) // phase.every
    steps = config.batch * _rollouts(phase) // phase.sgd.minibatch * phase.sgd.epochs
    known = is_mean_over_rows.dispatch(type(phase)) is not is_mean_over_rows.dispatch(object)
    return small and known and iterations * steps >= WORTHWHILE


def _able() -> bool:
    found = has_compiler()
    if not found:
        text = "no C++ compiler (g++ or clang++): going on without compiled steps"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return found


def _not_with_ranks() -> bool:
    text = "steps are not compiled on several ranks: going on without"
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return False


def check_ranks(config: Config, compile: str, world: World) -> None:
    """Refuse what several ranks cannot do exactly as one."""
    if world.size == 1:
        return
    check_divides(config.agents, world.size)
    for phase in config.phases:
        if not is_mean_over_rows(phase):
            key = f"{phase.name}.normalize_advantage: 'minibatch'"
            what = key if hasattr(phase, "normalize_advantage") else f"{phase.name}: its loss"
            raise BadInput(f"{what} is no mean over rows, which {world.size} ranks need")
    if config.noise is not None:
        raise BadInput(f"noise: is measured on one rank, not on {world.size}; leave it out")
    if compile == "on":
        raise BadInput(f"--compile on: is for one rank, not for {world.size}; leave it out")


def _rollouts(phase: AnyPhase) -> int:
    return phase.every if phase.reads == "replay" else 1


def steps_per_call(minibatches: int) -> int:
    """As many steps as fit, so that every call of an epoch is alike."""
    return max(n for n in range(1, MOST_STEPS + 1) if minibatches % n == 0)


def has_compiler() -> bool:
    """Whether the C++ compiler that torch would call is there."""
    wanted = shlex.split(os.environ.get("CXX", ""))[:1]
    return any(shutil.which(name) for name in wanted or ["g++", "clang++"])
