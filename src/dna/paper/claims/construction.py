"""Claims about how things are built: networks, phases, settings, counts."""

import contextlib
import csv
from collections.abc import Sequence
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from dna.algorithm.compiled_step import make_steps
from dna.algorithm.phases import freeze, loss
from dna.algorithm.rollout import Collector
from dna.config import SGD, AnyPhase, Policy, WarmUp
from dna.config.overrides import tweak
from dna.config.presets import preset
from dna.config.presets.tables import TABLES
from dna.envs import Making, make
from dna.envs.specs import ActionSpec, ObservationSpec, Stack
from dna.networks.batch import Experience
from dna.networks.flat_weights import FlatWeights
from dna.networks.networks import Networks
from dna.paper.claims.proofs import Proof

ATARI = ObservationSpec("image", (84, 84, 4), "uint8", Stack(108_000))
#: A small stand-in: what is claimed does not depend on the encoder.
VECTOR, ACTIONS = ObservationSpec("vector", (5,), "float32"), ActionSpec("categorical", (3,))


def stored_states() -> Proof:
    """States that DNA and PPG hold at a time."""
    dna, ppg = preset("tuned.dna"), preset("tuned.ppg")
    held = dna.batch, ppg.batch * ppg.replay_length
    return held == (16_384, 524_288), f"{held[0]:,} against {held[1]:,}"


def networks_are_apart() -> Proof:
    """θ_π and θ_V share nothing, and neither loss reaches the other network."""
    networks, data = _small()
    policy, value = networks.weights("policy"), networks.weights("value")
    shared = {id(p) for p in policy} & {id(p) for p in value}
    reached = 0
    for phase in preset("small.dna").phases:
        others = value if phase.trains == "policy" else policy
        reached += _reached(phase, networks, data, others)
    names = [name for name, _ in networks.named_parameters() if name.startswith("value.")]
    only = all("policy_head" not in name for name in names)
    return not shared and not reached and only, "no shared weight, no gradient across"


def student_can_be_teacher() -> Proof:
    """With the value network's weights copied, the distance of L^D is zero."""
    networks, data = _small()
    assert networks.value is not None
    networks.policy.encoder.load_state_dict(networks.value.encoder.state_dict())
    networks.policy.value_head.load_state_dict(networks.value.value_head.state_dict())
    phase = preset("small.dna").phases[2]
    frozen = data.with_columns(freeze(phase, networks, data))
    _, metrics = loss(phase, networks, frozen.rows(torch.arange(len(data))), 0.0)
    distance = float(metrics["value_loss"].detach())
    return distance == 0.0, f"distance {distance:g}"


def distillation_moves_the_policy_only() -> Proof:
    """∂L^D/∂θ_V = 0."""
    networks, data = _small()
    reached = _reached(preset("small.dna").phases[2], networks, data, networks.weights("value"))
    return reached == 0, f"gradient on {reached} of the value network's tensors"


def phases_read_the_rollout() -> Proof:
    """All of DNA's phases read the present rollout, each with its own settings."""
    config = preset("tuned.dna")
    kinds = [phase.kind for phase in config.phases]
    good = all(phase.reads == "rollout" for phase in config.phases)
    good &= config.replay_length == 0 and kinds == ["policy", "value", "distil"]
    adams, settings = _adams(), {phase.sgd for phase in config.phases}
    text = f"rollout only: {', '.join(kinds)}; {adams} optimizers, {len(settings)} settings"
    return good and adams == len(kinds) == len(settings), text


def _adams() -> int:
    """Optimizers with moments of their own that DNA's three phases step with."""
    config = preset("small.dna")
    networks = Networks(config, VECTOR, ACTIONS)
    steps = make_steps(config, networks, FlatWeights(networks), compile="off")
    return len({id(step.optimizer) for step in steps.values()})


#: Every model of figures 6, 7 and 10, by its network.
COMPARED = {
    "DNA": "tuned.dna",
    "PPG": "tuned.ppg",
    "PPO (2x)": "tuned.ppo",
    "PPO (1x)": "tuned.ppo_1x",
    "PPO (basic)": "tuned.ppo_basic",
    "PPO (orig)": "table1.ppo_orig",
}


def parameter_counts() -> Proof:
    """Weights of every model that is compared, with 18 actions, within a tenth of 3.5 M."""
    counts = {}
    for name, settings in COMPARED.items():
        with torch.device("meta"):
            networks = Networks(preset(settings), ATARI, ActionSpec("categorical", (18,)))
        counts[name] = sum(p.numel() for p in networks.parameters())
    others = [name for name, count in counts.items() if abs(count / 3.5e6 - 1) > 0.1]
    text = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in counts.items())
    return not others, text + (f"; not: {', '.join(others)}" if others else "")


def frames_and_interactions() -> Proof:
    """Frames that the emulator plays in an interaction, and presets of 200 million frames."""
    from dna.envs.atari.game import Game

    found = set()
    for name in ("tuned.dna", "tuned.ppo", "tuned.ppg", "easy.dna", "easy.ppo"):
        config = preset(name)
        assert config.env.atari is not None
        game = Game("pong", config.env.atari, 0, np.zeros((2, 210, 160), np.uint8))
        game.reset()
        before = game.ale.getFrameNumber()
        for _ in range(10):
            game.skip(0)
        each = (game.ale.getFrameNumber() - before) / 10
        found.add((config.interactions, each, each * config.interactions))
    text = "; ".join(f"{n:,} × {each:g} = {frames:,.0f} frames" for n, each, frames in found)
    return found == {(50_000_000, 4.0, 200_000_000.0)}, text


def warm_up_pulls_apart() -> Proof:
    """Ends of episodes of one length in 16 environments: the largest share in one step."""
    shares = [_ends_together(warm_up) for warm_up in (None, WarmUp())]
    text = f"Pendulum-v1, episodes of 200 steps: {shares[0]:.0%} end in one step"
    return shares[0] > 0.9 and shares[1] < 0.5, f"{text}, {shares[1]:.0%} after warm-up"


def _ends_together(warm_up: WarmUp | None) -> float:
    agents, rng = 16, np.random.default_rng(0)
    config = tweak(preset("small.dna"), **{"env.id": "Pendulum-v1", "agents": agents})
    config = config.model_copy(update={"warm_up": warm_up})
    with contextlib.closing(make(config.env, Making(agents, tuple(range(agents))))) as env:
        networks = Networks(config, env.observation, env.action)
        Collector(env, networks, config, 0).warm_up()
        ends = [env.step(env.uniform(rng)).done.sum() for _ in range(200)]
    return float(max(ends) / sum(ends))


def table_1_is_the_preset() -> Proof:
    """Table 1, cell by cell."""
    return _same("table1", "hyperparameters_atari.csv")


def table_3_is_the_preset() -> Proof:
    """Table 3, cell by cell."""
    return _same("table3", "environment_settings.csv")


def actions_cannot_be_seen() -> Proof:
    """Two different actions from one state of Breakout that give the same frame."""
    from dna.envs.atari.game import emulator

    ale = emulator("breakout")
    ale.reset_game()
    for _ in range(20):
        ale.act(0)
    state, frames = ale.cloneState(include_rng=True), []
    for action in (0, 2):  # nothing, up: a paddle moves sideways only
        ale.restoreState(state)
        ale.act(action)
        frames.append(ale.getScreenRGB())
    same = bool(np.array_equal(frames[0], frames[1]))
    return same, "no-op and up give the same frame of Breakout" if same else "frames differ"


def _same(name: str, file: str) -> Proof:
    text = resources.files("dna").joinpath("paper", "data", file).read_text(encoding="utf-8")
    cells = equal = 0
    ours = {row["setting"]: row for row in TABLES[name].cells()}
    for row in csv.DictReader(text.splitlines()):
        symbol = row.pop("symbol", "")
        setting = row.pop("setting") + (f" ({symbol})" if symbol else "")
        for column, cell in row.items():
            cells += 1
            equal += _number(ours[setting][column]) == _number(cell)
    return cells == equal, f"{equal} of {cells} cells are equal"


def _number(cell: str) -> tuple[str, object]:
    factor, _, rest = cell.rpartition("*")
    try:
        return factor, float(rest)
    except ValueError:
        return factor, rest


def _small() -> tuple[Networks, Experience]:
    torch.manual_seed(0)
    networks = Networks(preset("small.dna"), VECTOR, ACTIONS)
    rng, rows = np.random.default_rng(0), 32
    columns = {
        "action": torch.from_numpy(rng.integers(0, 3, (rows, 1))),
        "log_prob": torch.full((rows, 1), -1.1),
        "advantage": torch.from_numpy(rng.normal(size=rows)).float(),
        "v_targ": torch.from_numpy(rng.normal(size=rows)).float(),
        "weight": torch.ones(rows),
    }
    obs = torch.from_numpy(rng.normal(size=(rows, 5))).float()
    return networks, Experience(obs, columns)


def entropy_is_not_clipped() -> Proof:
    """L^CLIP where every ratio is clipped: its gradient is that of the entropy bonus alone."""
    networks, data = _small()
    assert isinstance(data.obs, Tensor)
    pi, rows = networks.pi(data.obs).pi, torch.arange(len(data))
    log_prob = networks.distribution.log_prob(pi, data.columns["action"]).detach()
    # Every ratio is e, far beyond 1 + ε, and its advantage would have it grow.
    far = {"log_prob": log_prob - 1.0, "advantage": torch.ones(len(data))}
    clipped, found = data.with_columns(far).rows(rows), {}
    for bonus in (0.0, 0.01):
        phase = Policy(sgd=SGD(epochs=1, minibatch=len(data)), entropy_bonus=bonus)
        found[bonus] = _gradient(loss(phase, networks, clipped, 0.0)[0], networks)
    own = _gradient(-0.01 * networks.distribution.entropy(pi).mean(), networks)
    apart = float((found[0.01] - own).abs().max() / own.abs().max())
    text = f"|∇ L^CLIP| = {float(found[0.0].norm()):g} without bonus"
    text += f", with it that of the entropy to {apart:.0e}"
    return float(found[0.0].abs().max()) == 0 and apart < 1e-4, text


def _gradient(objective: Tensor, networks: Networks) -> Tensor:
    """On θ_π, as one vector."""
    found = torch.autograd.grad(objective, networks.weights("policy"), allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None])


def _reached(
    phase: AnyPhase, networks: Networks, data: Experience, weights: Sequence[Tensor]
) -> int:
    """Tensors among these weights on which the phase's loss has a gradient."""
    frozen = data.with_columns(freeze(phase, networks, data))
    objective, _ = loss(phase, networks, frozen.rows(torch.arange(len(data))), 0.0)
    found = torch.autograd.grad(objective, weights, allow_unused=True)
    return sum(g is not None and bool(g.abs().max() > 0) for g in found)
