"""Claims about how things are built: networks, phases, settings, counts."""

import csv
from collections.abc import Sequence
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from dna.batch import Experience
from dna.config import AnyPhase
from dna.experiments.proofs import Proof
from dna.networks import Networks
from dna.phases import freeze, loss
from dna.presets import preset
from dna.presets.tables import TABLES
from dna.spaces import ActionSpec, ObservationSpec, Stack

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
    phases = preset("tuned.dna").phases
    kinds = [phase.kind for phase in phases]
    good = all(phase.reads == "rollout" for phase in phases)
    return good and kinds == ["policy", "value", "distil"], "rollout only: " + ", ".join(kinds)


def parameter_counts() -> Proof:
    """Weights of DNA and PPO (2x) with 18 actions."""
    counts = {}
    for name in ("tuned.dna", "tuned.ppo", "tuned.ppo_1x"):
        with torch.device("meta"):
            networks = Networks(preset(name), ATARI, ActionSpec("categorical", (18,)))
        counts[name] = sum(p.numel() for p in networks.parameters())
    good = all(abs(counts[n] / 3.5e6 - 1) < 0.05 for n in ("tuned.dna", "tuned.ppo"))
    text = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in counts.items())
    return good, f"{text} (a single narrow network has half)"


def table_1_is_the_preset() -> Proof:
    """Table 1, cell by cell."""
    return _same("table1", "hyperparameters_atari.csv")


def table_3_is_the_preset() -> Proof:
    """Table 3, cell by cell."""
    return _same("table3", "environment_settings.csv")


def actions_cannot_be_seen() -> Proof:
    """Two different actions from one state of Breakout that give the same frame."""
    from dna.envs.game import emulator

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
    text = resources.files("dna").joinpath("paper", file).read_text(encoding="utf-8")
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


def _reached(
    phase: AnyPhase, networks: Networks, data: Experience, weights: Sequence[Tensor]
) -> int:
    """Tensors among these weights on which the phase's loss has a gradient."""
    frozen = data.with_columns(freeze(phase, networks, data))
    objective, _ = loss(phase, networks, frozen.rows(torch.arange(len(data))), 0.0)
    found = torch.autograd.grad(objective, weights, allow_unused=True)
    return sum(g is not None and bool(g.abs().max() > 0) for g in found)
