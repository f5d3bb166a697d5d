"""Each phase against its equation, written with torch.distributions (sections 4.3 and 4.4).

The reference keeps only the rows that count, speaks torch.distributions, and writes the losses
case by case; values and gradients must agree. `run_phase` is compared with a plain loop.
"""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal, kl_divergence
from torch.nn.utils import clip_grad_norm_

from dna.algorithm.compiled_step import make_steps
from dna.algorithm.engine import EagerStep, clip, run_phase
from dna.algorithm.phases import freeze, loss
from dna.algorithm.rollout import Replay
from dna.common.errors import NonFinite
from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    Joint,
    Linear,
    Network,
    Policy,
    Value,
)
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.batch import Batch, Experience, flat, in_chunks, minibatches
from dna.networks.frames import JoinedRollouts
from dna.networks.networks import FlatWeights, Networks

ROWS = 24
STEPS = SGD(epochs=2, minibatch=8, learning_rate=1e-2, max_gradient_norm=0.5)
OBS = ObservationSpec("vector", (5,), "float32")
ACTIONS = {
    "categorical": ActionSpec("categorical", (4,)),
    "several": ActionSpec("categorical", (3, 2, 4)),
    "gaussian": ActionSpec("gaussian", (3,)),
}
LINE = Linear(start=0.4, end=0.0)

POLICIES = [
    Policy(sgd=STEPS),
    Policy(sgd=STEPS, normalize_advantage="none"),
    Policy(sgd=STEPS, normalize_advantage="minibatch", entropy_bonus=0.0),
    Policy(sgd=STEPS, surrogate="per_dimension", epsilon=0.1),
    Policy(sgd=STEPS, epsilon=LINE, entropy_bonus=LINE),
]
JOINTS = [
    Joint(sgd=STEPS),
    Joint(sgd=STEPS, value_weight=2.0, surrogate="per_dimension"),
    Joint(sgd=STEPS, epsilon=LINE, normalize_advantage="minibatch"),
]
VALUES = [Value(sgd=STEPS), Value(sgd=STEPS, weight=0.5)]
DISTILS = [
    Distil(sgd=STEPS),
    Distil(sgd=STEPS, beta=3.0, weight=0.5),
    Distil(sgd=STEPS, target="features"),
    Distil(sgd=STEPS, target="projection", beta=0.1),
    Distil(sgd=STEPS, constraint="logit_mse"),
]
MEAN_DISTILS = [
    Distil(sgd=STEPS, constraint="mean_mse"),
    Distil(sgd=STEPS, constraint="mean_mse_scaled", beta=2.0),
]
AUXILIARIES = [
    Auxiliary(sgd=STEPS, every=1, beta=2.0),
    Auxiliary(sgd=STEPS, every=1, variant="authors"),
]
PHASES = [*POLICIES, *JOINTS, *VALUES, *DISTILS, *AUXILIARIES]
CASES = [(phase, kind) for phase in PHASES for kind in ACTIONS]
CASES += [(phase, "gaussian") for phase in MEAN_DISTILS]


def title(case: object) -> str:
    if isinstance(case, str):
        return case
    names = ("kind", "target", "constraint", "variant", "surrogate", "normalize_advantage")
    return "-".join(str(getattr(case, name)) for name in names if hasattr(case, name))


every_case = pytest.mark.parametrize(("phase", "kind"), CASES, ids=title)


def build(phase, kind: str) -> Networks:
    """Small networks in float64, away from their flat start, with statistics of their own."""
    others = [Policy(sgd=STEPS, name="other_policy"), Value(sgd=STEPS, name="other_value")]
    others = [] if isinstance(phase, Joint) else others
    settings = Network(encoder="mlp", width=8, depth=1)
    config = Config(phases=(phase, *others), horizon=ROWS, agents=1, network=settings)
    torch.manual_seed(0)
    networks = Networks(config, OBS, ACTIONS[kind])
    networks.observe(3 + 2 * torch.randn(50, 5).numpy())
    networks.double()
    shake(networks, 0.3)
    return networks


def shake(networks: nn.Module, scale: float) -> None:
    with torch.no_grad():
        for p in networks.parameters():
            p.add_(scale * torch.randn(p.shape, dtype=p.dtype))


def rollout(networks: Networks, kind: str, holes: bool = True) -> Batch:
    """Data of an older policy, so that many ratios are beyond the clip."""
    torch.manual_seed(1)
    obs = 3 + 2 * torch.randn(ROWS, 5)
    old = copy.deepcopy(networks)
    shake(old, 0.3)
    with torch.no_grad():
        pieces = pi_of(old.pi(obs).pi, kind)
        action = torch.stack([piece.sample() for piece in pieces], dim=-1)
        log_prob = columns(pieces, action)
    weight = torch.ones(ROWS, dtype=torch.float64)
    if holes:
        weight[[1, 5, 6, 20]] = 0.0
    advantage, v_targ = 2 + 3 * torch.randn(2, ROWS, dtype=torch.float64)
    return {
        "obs": obs, "action": action, "log_prob": log_prob,
        "advantage": advantage, "v_targ": v_targ, "weight": weight,
    }  # fmt: skip


# ── the reference ─────────────────────────────────────────────────────────────────────────


def pi_of(params: Tensor, kind: str) -> list[Distribution]:
    """π as torch.distributions, one for each column of the action."""
    if kind == "gaussian":
        return [Normal(params[:, i], params[:, 3 + i].exp()) for i in range(3)]
    ends = np.cumsum(ACTIONS[kind].sizes)
    pairs = zip(ends, ACTIONS[kind].sizes, strict=True)
    return [Categorical(logits=params[:, end - size : end]) for end, size in pairs]


def columns(pieces: list[Distribution], action: Tensor) -> Tensor:
    return torch.stack([d.log_prob(action[:, i]) for i, d in enumerate(pieces)], dim=-1)


def divergence(old: Tensor, new: Tensor, kind: str) -> Tensor:
    pairs = zip(pi_of(old, kind), pi_of(new, kind), strict=True)
    return sum(kl_divergence(p, q) for p, q in pairs)


def standardized(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)


def pessimistic(ratio: Tensor, advantage: Tensor, epsilon: float) -> Tensor:
    """L^CLIP by cases: a gain counts up to ρ = 1+ε, a loss from ρ = 1−ε on."""
    most, least = ratio.clamp(max=1 + epsilon), ratio.clamp(min=1 - epsilon)
    return torch.where(advantage >= 0, most, least) * advantage


def value_at(schedule: float | Linear, progress: float) -> float:
    if isinstance(schedule, Linear):
        return (1 - progress) * schedule.start + progress * schedule.end
    return schedule


def clip_objective(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    """Ê[min(ρÂ, clip(ρ)Â) + c_eb S[π]], equation (11)."""
    pieces = pi_of(networks.pi(rows["obs"]).pi, kind)
    log_ratio = columns(pieces, rows["action"]) - rows["log_prob"]
    advantage, epsilon = rows["advantage"], value_at(phase.epsilon, progress)
    if phase.normalize_advantage == "minibatch":
        advantage = standardized(advantage)
    if phase.surrogate == "joint":
        surrogate = pessimistic(log_ratio.sum(-1).exp(), advantage, epsilon)
    else:
        each = [pessimistic(column.exp(), advantage, epsilon) for column in log_ratio.T]
        surrogate = sum(each) / len(each)
    entropy = sum(piece.entropy() for piece in pieces)
    return (surrogate + value_at(phase.entropy_bonus, progress) * entropy).mean()


def policy_reference(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    return -clip_objective(phase, networks, rows, kind, progress)


def joint_reference(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    error = nn.functional.mse_loss(networks.pi(rows["obs"]).value, rows["v_targ"])
    return phase.value_weight * error - clip_objective(phase, networks, rows, kind, progress)


def value_reference(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    """Equation (12)."""
    value = networks.value(networks.preprocess(rows["obs"]))
    return phase.weight * nn.functional.mse_loss(value, rows["v_targ"])


def answer(network: nn.Module, target: str, x: Tensor) -> Tensor:
    """What the student is taught, and what the teacher says, for each target of appendix J."""
    features = network.encoder(x)
    if target == "features":
        return features
    hidden = features.tanh()
    if target == "projection":
        return hidden @ network.projection.weight.T + network.projection.bias
    return (hidden @ network.value_head.weight.T + network.value_head.bias)[:, 0]


def distil_reference(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    """Equation (10), with the constraint's named variants."""
    student = answer(networks.policy, phase.target, networks.preprocess(rows["obs"]))
    old, new = rows["pi_old"], networks.pi(rows["obs"]).pi
    if phase.constraint == "kl":
        constraint = divergence(old, new, kind).mean()
    elif phase.constraint == "logit_mse":
        constraint = 0.5 * nn.functional.mse_loss(new, old)
    elif phase.constraint == "mean_mse":
        constraint = nn.functional.mse_loss(new[:, :3], old[:, :3])
    else:
        variance = networks.policy.log_std.detach().exp() ** 2
        constraint = ((new[:, :3] - old[:, :3]) ** 2 / (2 * variance + 1e-5)).mean() / 2
    error = nn.functional.mse_loss(student, rows["teacher"])
    return phase.weight * error + phase.beta * constraint


def auxiliary_reference(phase, networks, rows: Batch, kind: str, progress: float) -> Tensor:
    output = networks.pi(rows["obs"])
    value = networks.value(networks.preprocess(rows["obs"]))
    errors = [nn.functional.mse_loss(v, rows["v_targ"]) for v in (output.value, value)]
    if phase.variant == "cobbe":
        kl = divergence(rows["pi_old"], output.pi, kind).mean()
        return 0.5 * errors[0] + 0.5 * errors[1] + phase.beta * kl
    kl = divergence(output.pi, rows["pi_old"], kind).mean()
    return errors[0] + errors[1] + phase.beta * kl


REFERENCES: dict[type, Callable[..., Tensor]] = {
    Policy: policy_reference,
    Joint: joint_reference,
    Value: value_reference,
    Distil: distil_reference,
    Auxiliary: auxiliary_reference,
}


def reference(phase, networks, mb: Batch, kind: str, progress: float) -> Tensor:
    """The loss over only those rows that count."""
    rows = {name: column[mb["weight"] == 1] for name, column in mb.items()}
    return REFERENCES[type(phase)](phase, networks, rows, kind, progress)


@torch.no_grad()
def frozen(phase, networks: Networks, batch: Batch) -> Batch:
    """The columns a phase must fix before its first epoch, from a copy of the networks."""
    before = copy.deepcopy(networks)
    x, fixed = before.preprocess(batch["obs"]), dict(batch)
    if getattr(phase, "normalize_advantage", None) == "batch":
        counted = batch["weight"] == 1
        fixed["advantage"] = batch["advantage"].clone()
        fixed["advantage"][counted] = standardized(batch["advantage"][counted])
    if phase.kind in ("distil", "auxiliary"):
        fixed["pi_old"] = before.pi(batch["obs"]).pi
    if phase.kind == "distil":
        fixed["teacher"] = answer(before.value, phase.target, x)
    return fixed


def gradients(objective: Tensor, networks: Networks) -> dict[str, Tensor | None]:
    named = {name: p for name, p in networks.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(objective, list(named.values()), allow_unused=True)
    return dict(zip(named, grads, strict=True))


def assert_same_gradients(ours: dict[str, Tensor | None], theirs: dict[str, Tensor | None]):
    assert ours.keys() == theirs.keys()
    for name, grad in ours.items():
        if theirs[name] is None:
            assert grad is None, name
        else:
            torch.testing.assert_close(grad, theirs[name], rtol=1e-6, atol=1e-9, msg=name)


def prepared(phase, kind: str, holes: bool = True) -> tuple[Networks, Batch]:
    """Networks that have moved since their targets were frozen, and the frozen batch."""
    networks = build(phase, kind)
    batch = rollout(networks, kind, holes)
    batch = batch | freeze(phase, networks, Experience.of(batch))
    shake(networks.policy, 0.1)
    return networks, batch


# ── loss and gradient ─────────────────────────────────────────────────────────────────────


@every_case
def test_loss_and_gradient_are_those_of_the_equation(phase, kind):
    networks, batch = prepared(phase, kind)
    ours, metrics = loss(phase, networks, batch, 0.25)
    theirs = reference(phase, networks, batch, kind, 0.25)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(metrics["loss"], theirs, rtol=1e-6, atol=1e-9)
    assert_same_gradients(gradients(ours, networks), gradients(theirs, networks))


@every_case
def test_what_is_frozen_is_what_the_networks_said_before(phase, kind):
    networks = build(phase, kind)
    batch = rollout(networks, kind)
    expected = frozen(phase, networks, batch)
    ours = batch | freeze(phase, networks, Experience.of(batch))
    counted = batch["weight"] == 1
    assert ours.keys() == expected.keys()
    for name, column in ours.items():
        assert not column.requires_grad
        torch.testing.assert_close(
            column[counted], expected[name][counted], rtol=1e-9, atol=1e-9
        )


@every_case
def test_rows_without_weight_change_neither_loss_nor_gradient(phase, kind):
    networks = build(phase, kind)
    batch = rollout(networks, kind)
    counted = batch["weight"] == 1
    batch["advantage"][~counted] = 1e3
    batch["v_targ"][~counted] = -1e3
    kept = {name: column[counted] for name, column in batch.items()}
    results = []
    for rows in (batch, kept):
        mb = rows | freeze(phase, networks, Experience.of(rows))
        objective, _ = loss(phase, networks, mb, 0.0)
        results.append((objective, gradients(objective, networks)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-9)
    assert_same_gradients(results[0][1], results[1][1])


@pytest.mark.parametrize("phase", PHASES, ids=title)
def test_a_mini_batch_without_any_weight_asks_for_nothing(phase):
    networks, batch = prepared(phase, "categorical")
    empty = {**batch, "weight": torch.zeros_like(batch["weight"])}
    objective, _ = loss(phase, networks, empty, 0.0)
    assert objective.item() == 0.0
    grads = gradients(objective, networks).values()
    assert all(not grad.any() for grad in grads if grad is not None)


@pytest.mark.parametrize("constraint", ["kl", "logit_mse", "mean_mse", "mean_mse_scaled"])
def test_the_constraint_is_flat_where_the_policy_has_not_moved(constraint):
    phase = Distil(sgd=STEPS, constraint=constraint)
    networks = build(phase, "gaussian")
    batch = rollout(networks, "gaussian")
    batch |= freeze(phase, networks, Experience.of(batch))
    batch["teacher"] = networks.pi(batch["obs"]).value.detach()  # nothing to distil
    objective, _ = loss(phase, networks, batch, 0.0)
    assert objective.item() == pytest.approx(0.0, abs=1e-12)
    for grad in gradients(objective, networks).values():
        assert grad is None or grad.abs().max() < 1e-12


def test_the_policys_metrics_are_what_their_names_say():
    phase = Policy(sgd=STEPS)
    networks, batch = prepared(phase, "several")
    _, metrics = loss(phase, networks, batch, 0.0)
    rows = {name: column[batch["weight"] == 1] for name, column in batch.items()}
    pieces = pi_of(networks.pi(rows["obs"]).pi, "several")
    log_ratio = (columns(pieces, rows["action"]) - rows["log_prob"]).sum(-1).detach()
    ratio = log_ratio.exp()
    outside = ((ratio > 1.2) | (ratio < 0.8)).double().mean()
    assert 0.1 < outside < 0.95, "the data must exercise both sides"
    assert metrics["clip_fraction"].item() == pytest.approx(outside.item())
    assert metrics["approx_kl"].item() == pytest.approx((ratio - 1 - log_ratio).mean().item())
    entropy = sum(piece.entropy() for piece in pieces).mean()
    assert metrics["entropy"].item() == pytest.approx(entropy.item())


@pytest.mark.parametrize("phase", [Value(sgd=STEPS), Auxiliary(sgd=STEPS, every=1)], ids=title)
def test_a_column_target_is_refused_rather_than_broadcast(phase):
    networks, batch = prepared(phase, "categorical")
    batch["v_targ"] = batch["v_targ"][:, None]
    with pytest.raises(AssertionError, match=r"\[24\].*\[24, 1\]"):
        loss(phase, networks, batch, 0.0)


def test_a_phase_without_a_loss_is_named():
    with pytest.raises(TypeError, match="no loss is registered for the phase Linear"):
        loss(LINE, None, {}, 0.0)


# ── whose weights ─────────────────────────────────────────────────────────────────────────


def touched(phase, kind: str) -> set[str]:
    """The parts of the networks that receive a gradient other than zero."""
    networks, batch = prepared(phase, kind)
    objective, _ = loss(phase, networks, batch, 0.0)
    grads = gradients(objective, networks)
    given = {name for name, grad in grads.items() if grad is not None and grad.any()}
    return {".".join(name.split(".")[:2]) for name in given}


PI = {"policy.encoder", "policy.policy_head"}
V = {"value.encoder", "value.value_head"}
V_PI = {"policy.value_head"}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        (Policy(sgd=STEPS), PI),
        (Joint(sgd=STEPS), PI | V_PI),
        (Value(sgd=STEPS), V),
        (Distil(sgd=STEPS), PI | V_PI),
        (Distil(sgd=STEPS, target="features"), PI),
        (Distil(sgd=STEPS, target="projection"), PI | {"policy.projection"}),
        (Auxiliary(sgd=STEPS, every=1), PI | V_PI | V),
    ],
    ids=title,
)
def test_a_phase_touches_its_own_part_of_the_networks(phase, parts, kind):
    deviation = (
        {"policy.log_std"} if kind == "gaussian" and "policy.encoder" in parts else set()
    )
    assert touched(phase, kind) == parts | deviation


def test_heads_and_networks_a_phase_does_not_train_have_no_gradient_at_all():
    for phase, foreign in (
        (Policy(sgd=STEPS), ("value.", "policy.value_head.")),
        (Value(sgd=STEPS), ("policy.",)),
        (Distil(sgd=STEPS), ("value.",)),
    ):
        networks, batch = prepared(phase, "gaussian")
        objective, _ = loss(phase, networks, batch, 0.0)
        grads = gradients(objective, networks)
        assert all((grad is None) == name.startswith(foreign) for name, grad in grads.items())


@pytest.mark.parametrize("phase", MEAN_DISTILS, ids=title)
def test_constraints_on_the_mean_leave_the_deviation_alone(phase):
    assert touched(phase, "gaussian") == PI | V_PI


@every_case
def test_running_a_phase_moves_only_the_weights_it_trains(phase, kind):
    networks = build(phase, kind)
    before = copy.deepcopy(networks.state_dict())
    batch = rollout(networks, kind)
    columns_before = {name: column.clone() for name, column in batch.items()}
    run(phase, networks, batch)
    moved = {n for n, t in networks.state_dict().items() if not torch.equal(t, before[n])}
    allowed = ("policy.", "value.") if phase.trains == "both" else (f"{phase.trains}.",)
    assert moved
    assert all(name.startswith(allowed) for name in moved)
    assert batch.keys() == columns_before.keys()
    assert all(torch.equal(batch[name], columns_before[name]) for name in batch)


# ── the engine ────────────────────────────────────────────────────────────────────────────


def experience(data: Batch | Experience) -> Experience:
    return data if isinstance(data, Experience) else Experience.of(data)


def run(phase, networks: Networks, batch: Batch | Experience, progress: float = 0.25):
    step, rng = EagerStep(phase, networks, FlatWeights(networks)), np.random.default_rng(7)
    return run_phase(phase, networks, step, experience(batch), rng, progress)


def run_by_hand(phase, networks: Networks, batch: Batch, kind: str, progress: float) -> list:
    """Targets once, then plain epochs with torch's own Adam and clipping; the losses seen."""
    fixed, rng, seen = frozen(phase, networks, batch), np.random.default_rng(7), []
    parts = {"policy": [networks.policy], "value": [networks.value]}
    parts["both"] = parts["policy"] + parts["value"]
    weights = [p for part in parts[phase.trains] for p in part.parameters() if p.requires_grad]
    rate = value_at(phase.sgd.learning_rate, progress)
    adam = torch.optim.Adam(weights, lr=rate, eps=phase.sgd.adam_eps, foreach=False)
    for _ in range(phase.sgd.epochs):
        order = rng.permutation(ROWS)
        for start in range(0, ROWS, phase.sgd.minibatch):
            rows = order[start : start + phase.sgd.minibatch]
            mb = {name: column[rows] for name, column in fixed.items()}
            adam.zero_grad()
            objective = reference(phase, networks, mb, kind, progress)
            objective.backward()
            if phase.sgd.max_gradient_norm is not None:
                clip_grad_norm_(weights, phase.sgd.max_gradient_norm)
            adam.step()
            seen.append(objective.item())
    return seen


@every_case
def test_a_phase_is_an_ordinary_loop_over_frozen_targets(phase, kind):
    ours = build(phase, kind)
    theirs = copy.deepcopy(ours)
    batch = rollout(ours, kind)
    metrics = run(phase, ours, batch)
    seen = run_by_hand(phase, theirs, batch, kind, 0.25)
    assert len(seen) == 6
    assert metrics[f"{phase.name}/loss"] == pytest.approx(np.mean(seen), rel=1e-6)
    pairs = zip(ours.named_parameters(), theirs.parameters(), strict=True)
    for (name, mine), yours in pairs:
        torch.testing.assert_close(mine, yours, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("limit", [None, 1e-3, 1e6])
def test_the_gradient_norm_may_be_limited_or_not(limit):
    rate = Linear(start=1e-2, end=2e-3)
    steps = STEPS.model_copy(update={"max_gradient_norm": limit, "learning_rate": rate})
    phase = Value(sgd=steps)
    ours = build(phase, "categorical")
    theirs = copy.deepcopy(ours)
    batch = rollout(ours, "categorical")
    metrics = run(phase, ours, batch, progress=0.5)
    assert metrics["value/learning_rate"] == pytest.approx(6e-3)
    run_by_hand(phase, theirs, batch, "categorical", 0.5)
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("limit", [0.1, 100.0])
def test_clipping_is_torchs_over_all_weights(limit):
    weights = [nn.Parameter(torch.zeros(n)) for n in (3, 4, 5)]
    for weight in weights[:2]:
        weight.grad = torch.arange(1.0, len(weight) + 1)
    ours = torch.cat([weights[0].grad, weights[1].grad, torch.zeros(5)])
    norm = clip(ours, limit)
    torch.testing.assert_close(norm, clip_grad_norm_(weights, limit))
    assert norm.item() == pytest.approx(np.sqrt(14 + 30))
    torch.testing.assert_close(ours[:7], torch.cat([w.grad for w in weights[:2]]))
    assert not ours[7:].any()


def test_without_a_limit_the_gradient_is_only_measured():
    gradient = torch.tensor([30.0, 40.0])
    assert clip(gradient, None).item() == pytest.approx(50.0)
    assert gradient.tolist() == [30.0, 40.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "phase", [Value(sgd=STEPS, name="critic"), Joint(sgd=STEPS)], ids=title
)
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_phase(phase, bad):
    networks = build(phase, "categorical")
    batch = rollout(networks, "categorical", holes=False)
    batch["v_targ"][3] = bad
    with pytest.raises(NonFinite, match=rf"^{phase.name}/.* became (nan|inf)"):
        run(phase, networks, batch)


def test_no_epochs_is_no_change():
    phase = Value(sgd=STEPS.model_copy(update={"epochs": 0}))
    networks = build(phase, "categorical")
    before = copy.deepcopy(networks.state_dict())
    metrics = run(phase, networks, rollout(networks, "categorical"))
    assert metrics == {"value/learning_rate": 1e-2}
    assert all(torch.equal(t, before[name]) for name, t in networks.state_dict().items())


def test_each_phase_has_an_adam_of_its_own_over_what_it_trains():
    phases = (
        Policy(sgd=STEPS), Value(sgd=STEPS), Distil(sgd=STEPS),
        Auxiliary(sgd=STEPS.model_copy(update={"adam_eps": 1e-3}), every=2),
    )  # fmt: skip
    config = Config(phases=phases, horizon=ROWS, agents=1)
    networks = Networks(config, OBS, ACTIONS["categorical"])
    steps = make_steps(config, networks, FlatWeights(networks), "off")
    assert list(steps) == ["policy", "value", "distil", "aux"]
    spans = {name: memory(step.optimizer) for name, step in steps.items()}
    theta = {name: set(map(address, networks.weights(name))) for name in ("policy", "value")}
    assert spans["policy"] == spans["distil"]
    assert all(start in spans["policy"] for start in theta["policy"])
    assert all(start in spans["value"] for start in theta["value"])
    assert not set(spans["policy"]) & set(spans["value"])
    assert set(spans["aux"]) == set(spans["policy"]) | set(spans["value"])
    sizes = {name: sum(p.numel() for p in networks.weights(name)) for name in theta}
    assert {name: len(spans[name]) // 4 for name in sizes} == sizes
    assert steps["policy"].optimizer.param_groups[0]["eps"] == 1e-5
    assert steps["aux"].optimizer.param_groups[0]["eps"] == 1e-3
    assert all(not step.optimizer.state for step in steps.values())


def address(weight: Tensor) -> int:
    return weight.data_ptr()


def memory(adam: torch.optim.Adam) -> range:
    """The bytes an optimizer may move."""
    (vector,) = adam.param_groups[0]["params"]
    return range(address(vector), address(vector) + 4 * len(vector))


def test_phases_do_not_share_their_moments():
    phase = Policy(sgd=STEPS)
    config = Config(phases=(phase, Value(sgd=STEPS), Distil(sgd=STEPS)), horizon=ROWS, agents=1)
    networks = Networks(config, OBS, ACTIONS["categorical"])
    steps = make_steps(config, networks, FlatWeights(networks), "off")
    data = Experience.of(rollout(networks, "categorical"))
    head = networks.policy.value_head.weight
    before = head.detach().clone()
    run_phase(phase, networks, steps["policy"], data, np.random.default_rng(0), 0.0)
    ((vector, moments),) = steps["policy"].optimizer.state.items()
    assert not steps["distil"].optimizer.state
    start = (address(head) - address(vector)) // 4
    for name in ("exp_avg", "exp_avg_sq"):
        assert moments[name].any()
        assert not moments[name][start : start + head.numel()].any(), "no gradient, no moments"
    assert torch.equal(head, before)


@pytest.mark.parametrize("rows", [4, 6, 12])
@every_case
def test_a_mini_batch_may_be_walked_in_pieces(phase, kind, rows):
    whole, pieces = build(phase, kind), build(phase, kind)
    batch = rollout(whole, kind)
    steps = {
        "whole": EagerStep(phase, whole, FlatWeights(whole)),
        "pieces": EagerStep(phase, pieces, FlatWeights(pieces), rows),
    }
    rng = np.random.default_rng
    one = run_phase(phase, whole, steps["whole"], experience(batch), rng(7), 0.25)
    other = run_phase(phase, pieces, steps["pieces"], experience(batch), rng(7), 0.25)
    assert other == pytest.approx(one, rel=1e-9)
    for mine, yours in zip(whole.parameters(), pieces.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-9, atol=1e-11)


# ── batches ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [2, 8, 24, 7])
def test_an_epoch_gives_each_row_exactly_once_with_all_its_columns(size):
    row = torch.arange(ROWS)
    columns = {"weight": torch.ones(ROWS), "row": row}
    batch = Experience(row.square()[:, None], columns)
    rng = np.random.default_rng(0)
    epochs = [[mb.gather() for mb in minibatches(batch, size, rng)] for _ in range(2)]
    for epoch in epochs:
        assert all(len(mb["row"]) == size for mb in epoch[:-1])
        assert torch.cat([mb["row"] for mb in epoch]).sort().values.equal(row)
        for mb in epoch:
            assert torch.equal(mb["obs"][:, 0], mb["row"].square())
    orders = [torch.cat([mb["row"] for mb in epoch]) for epoch in epochs]
    assert not torch.equal(*orders), "each epoch has an order of its own"


@pytest.mark.parametrize("together", [2, 3])
def test_mini_batches_that_come_together_are_the_same_mini_batches(together):
    row = torch.arange(ROWS)
    columns = {"weight": torch.ones(ROWS), "row": row}
    for obs in (row[:, None], JoinedRollouts((row[:, None],))):
        batch = Experience(obs, columns)
        rng = np.random.default_rng
        one = [mb.gather() for mb in minibatches(batch, 4, rng(0))]
        many = [mb.gather() for mb in minibatches(batch, 4, rng(0), together)]
        assert len(many) == len(one) // together
        for name in ("row", "obs"):
            expected = torch.cat([mb[name] for mb in one])
            assert torch.equal(torch.cat([mb[name] for mb in many]), expected)
        assert not torch.equal(torch.cat([mb["row"] for mb in one]), row)


@pytest.mark.parametrize("rows", [1, 7, 24, 100])
def test_a_pass_in_chunks_equals_a_pass_over_everything(rows):
    networks = build(Value(sgd=STEPS), "categorical")
    obs = rollout(networks, "categorical")["obs"]
    sizes = []

    def function(chunk: Tensor) -> Tensor:
        sizes.append(len(chunk))
        return networks.pi(chunk).pi

    ours = in_chunks(function, obs, rows=rows)
    torch.testing.assert_close(ours, networks.pi(obs).pi.detach(), rtol=1e-12, atol=1e-12)
    assert not ours.requires_grad
    assert max(sizes) <= rows
    assert sum(sizes) == ROWS


def test_flattening_keeps_the_agents_of_a_step_together():
    x = torch.arange(24).reshape(3, 4, 2)
    assert torch.equal(flat(x)[1 * 4 + 2], x[1, 2])
    assert flat(x).shape == (12, 2)


def labeled(number: float) -> Experience:
    names = ("obs", "v_targ", "weight", "advantage")
    return Experience.of({name: torch.full((3,), number) for name in names})


def test_the_replay_holds_the_last_rollouts_oldest_first():
    replay = Replay(3)
    for number in range(5):
        replay.add(labeled(float(number)))
    everything = replay.experience(3)
    assert everything["v_targ"].tolist() == [2.0] * 3 + [3.0] * 3 + [4.0] * 3
    assert set(everything.columns) == {"v_targ", "weight"}, "only what the phase reads is kept"
    assert everything.obs[:].tolist() == everything["v_targ"].tolist()
    assert replay.experience(1).obs[:].tolist() == [4.0] * 3
    replay.clear()
    replay.add(labeled(9.0))
    assert replay.experience(3)["v_targ"].tolist() == [9.0] * 3


def test_a_replay_of_nothing_keeps_nothing():
    replay = Replay(0)
    replay.add(labeled(1.0))
    assert replay.rollouts == []


def test_the_auxiliary_phase_learns_from_a_replay():
    phase = Auxiliary(sgd=STEPS, every=1)
    ours = build(phase, "categorical")
    theirs = copy.deepcopy(ours)
    batch, replay = rollout(ours, "categorical"), Replay(1)
    replay.add(Experience.of(batch))
    expected = run(phase, theirs, batch)
    assert run(phase, ours, replay.experience(1)) == pytest.approx(expected, rel=1e-9)
