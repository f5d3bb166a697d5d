"""The five settings tables in the paper's layout, read from the presets.

Cells are what our presets hold, never what the paper printed: tests/paper/test_presets.py
compares the two.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dna.common.errors import UnknownKey
from dna.config import Config
from dna.config.overrides import at
from dna.config.presets import (
    easy,
    table1_atari,
    table2_ppg,
    table6_mujoco,
    table7_procgen,
    tuned,
)

Cell = Callable[[Config], str]


class Row(NamedTuple):
    """A setting as the paper calls it, and its text for a configuration."""

    label: str
    cell: Cell


class SettingsTable(NamedTuple):
    """A table of the paper: one column per preset, one row per setting."""

    label: str  # of the paper's LaTeX source
    title: str
    columns: dict[str, Config]
    rows: tuple[Row, ...]

    def cells(self) -> list[dict[str, str]]:
        """One mapping per row: `setting`, then each column."""
        return [
            {"setting": row.label}
            | {name: row.cell(config) for name, config in self.columns.items()}
            for row in self.rows
        ]


def _text(value: Any) -> str:
    """Numbers as the paper prints them: 2.5e-4, and alpha*0.01 for one annealed to zero."""
    if isinstance(value, dict):
        return f"alpha*{_text(value['start'])}"
    if isinstance(value, float) and 0 < value < 1e-3:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{float(mantissa)}e{int(exponent)}"
    return str(value)


def _key(*keys: str, absent: str = "") -> Cell:
    """The first of these settings that the configuration has; `absent` if none, or if off."""

    def cell(config: Config) -> str:
        for key in keys:
            try:
                value = at(config, key)
            except UnknownKey:
                continue
            return absent if value is None else _text(value)
        return absent

    return cell


def _either(key: str, absent: str = "") -> Cell:
    """A setting of the policy phase, or of PPO's only one."""
    return _key(f"policy.{key}", f"joint.{key}", absent=absent)


def _third(key: str) -> Cell:
    """A setting of DNA's distillation, or of PPG's auxiliary phase."""
    return _key(f"distil.{key}", f"aux.{key}")


_FIRST = (
    Row("Entropy bonus (c_eb)", _either("entropy_bonus")),
    Row("Rollout horizon (N)", _key("horizon")),
    Row("Parallel agents (A)", _key("agents")),
    Row("PPO epsilon (epsilon)", _either("epsilon")),
    Row("Discount gamma (gamma)", _key("returns.gamma")),
)
_LAMBDAS = (
    Row("Policy lambda (lambda_pi)", _key("returns.lambda_pi")),
    Row("Value lambda (lambda_V)", _key("returns.lambda_v")),
)
_RATE = Row("Learning rate", _either("sgd.learning_rate"))
_EPOCHS = (
    Row("Policy epochs (E_pi/E_ppo)", _either("sgd.epochs")),
    Row("Value epochs (E_V)", _key("value.sgd.epochs")),
)
_MINIBATCHES = (
    Row("Policy mini-batch size", _either("sgd.minibatch")),
    Row("Value mini-batch size", _key("value.sgd.minibatch")),
)
_PENALTY = Row("Repeated action penalty", _key("repeat_penalty.amount", absent="0.0"))
_CLIP = Row("Global gradient clipping", _either("sgd.max_gradient_norm", absent="off"))

TABLE1 = SettingsTable(
    "tab:main_hps",
    "Table 1: coarse search on Atari",
    {"dna": table1_atari.DNA, "ppo": table1_atari.PPO, "ppo_orig": table1_atari.PPO_ORIG},
    (
        *_FIRST,
        _RATE,
        *_LAMBDAS,
        *_EPOCHS,
        Row("Distil epochs (E_D)", _third("sgd.epochs")),
        Row("Distil beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Row("Distil mini-batch size", _third("sgd.minibatch")),
        _PENALTY,
        _CLIP,
    ),
)
TABLE2 = SettingsTable(
    "tab:ppg_hps",
    "Table 2: PPG on Atari; all others as DNA's in table 1",
    {"ppg": table2_ppg.PPG, "ppg_tuned": table2_ppg.PPG_TUNED},
    (
        Row("Policy epochs (E_pi)", _either("sgd.epochs")),
        Row("Value epochs (E_V)", _key("value.sgd.epochs")),
        Row("Distil epochs (E_D)", _key("distil.sgd.epochs", absent="0")),
        Row("Auxiliary epochs (E_aux)", _key("aux.sgd.epochs")),
        Row("Auxiliary period (N_pi)", _key("aux.every")),
    ),
)


def _atari(show: Callable[[Any], str]) -> Cell:
    return lambda config: show(config.env.atari)


TABLE3 = SettingsTable(
    "tab:env_settings",
    "Table 3: settings of the Atari games",
    {"easy": easy.DNA, "hard": tuned.DNA},
    (
        Row("Terminal on loss of life", _atari(lambda a: str(a.life_loss == "terminal"))),
        Row("Action space", _atari(lambda a: a.actions.capitalize())),
        Row("Repeat action probability", _key("env.atari.sticky")),
        Row(
            "Training frames",
            lambda config: f"{config.interactions * at(config, 'env.atari.skip') // 10**6}M",
        ),
        # Two rows that no setting of ours changes.
        Row("Color / grayscale", lambda _: "Grayscale"),
        Row("Frame stacked", _key("env.atari.stack")),
        Row("Action repetitions", _key("env.atari.skip")),
        Row("Reward clipping", lambda _: "No"),
        Row("Episode timeout", _atari(lambda a: f"{a.max_frames // 1000}K")),
        Row("Resolution", _atari(lambda a: f"{a.size}x{a.size}")),
        Row("Noop starts", _atari(lambda a: "-".join(str(n) for n in a.noops))),
    ),
)
TABLE6 = SettingsTable(
    "tab:mujoco_hps",
    "Table 6: MuJoCo",
    {"ppo": table6_mujoco.PPO, "dna": table6_mujoco.DNA},
    (
        *_FIRST,
        Row("Learning rate (annealed linearly to 0.0)", _either("sgd.learning_rate.start")),
        *_LAMBDAS,
        *_EPOCHS,
        Row("Distil epochs (E_D)", _third("sgd.epochs")),
        Row("Distil beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Row("Distil/Aux mini-batch size", _third("sgd.minibatch")),
        _CLIP,
    ),
)
TABLE7 = SettingsTable(
    "tab:procgen_hps",
    "Table 7: Procgen",
    {"ppo": table7_procgen.PPO, "dna": table7_procgen.DNA, "ppg": table7_procgen.PPG},
    (
        *_FIRST,
        _RATE,
        *_LAMBDAS,
        _PENALTY,
        *_EPOCHS,
        Row("Distil/Aux epochs (E_D)", _third("sgd.epochs")),
        Row("Distil/Aux beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Row("Distil/Aux mini-batch size", _third("sgd.minibatch")),
        _CLIP,
    ),
)

#: By number, as `dna show table1` has them.
TABLES = {
    "table1": TABLE1,
    "table2": TABLE2,
    "table3": TABLE3,
    "table6": TABLE6,
    "table7": TABLE7,
}
