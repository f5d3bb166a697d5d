"""The five settings tables in the paper's layout, read from the presets.

Cells are the values of the presets, never copies of the paper's: tests/paper/test_presets.py
compares the two.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dna.common.errors import UnknownKey
from dna.config import Config
from dna.config.overrides import at
from dna.config.presets import atari, mujoco, procgen

Cell = Callable[[Config], str]


class Entry(NamedTuple):
    """A setting as the paper calls it, and its text for a configuration."""

    label: str
    cell: Cell


class SettingsTable(NamedTuple):
    """A table of the paper: one column per preset, one row per setting."""

    label: str  # of the paper's LaTeX source
    title: str
    columns: dict[str, Config]
    rows: tuple[Entry, ...]

    def cells(self) -> list[dict[str, str]]:
        """Return one mapping per row: `setting`, then each column."""
        return [
            {"setting": row.label}
            | {name: row.cell(config) for name, config in self.columns.items()}
            for row in self.rows
        ]


def _text(value: Any) -> str:
    """Format numbers as the paper does: 2.5e-4, and alpha*0.01 for one annealed to zero."""
    if isinstance(value, dict):
        return f"alpha*{_text(value['start'])}"
    if isinstance(value, float) and 0 < value < 1e-3:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{float(mantissa)}e{int(exponent)}"
    return str(value)


def _key(*keys: str, absent: str = "") -> Cell:
    """Show the first of these settings that a configuration has; `absent` if none, or off."""

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
    """Show a setting of the policy phase, or of PPO's only phase."""
    return _key(f"policy.{key}", f"joint.{key}", absent=absent)


def _third(key: str) -> Cell:
    """Show a setting of DNA's distillation, or of PPG's auxiliary phase."""
    return _key(f"distil.{key}", f"aux.{key}")


_FIRST = (
    Entry("Entropy bonus (c_eb)", _either("entropy_bonus")),
    Entry("Rollout horizon (N)", _key("horizon")),
    Entry("Parallel agents (A)", _key("agents")),
    Entry("PPO epsilon (epsilon)", _either("epsilon")),
    Entry("Discount gamma (gamma)", _key("returns.gamma")),
)
_LAMBDAS = (
    Entry("Policy lambda (lambda_pi)", _key("returns.lambda_pi")),
    Entry("Value lambda (lambda_V)", _key("returns.lambda_v")),
)
_RATE = Entry("Learning rate", _either("sgd.learning_rate"))
_EPOCHS = (
    Entry("Policy epochs (E_pi/E_ppo)", _either("sgd.epochs")),
    Entry("Value epochs (E_V)", _key("value.sgd.epochs")),
)
_MINIBATCHES = (
    Entry("Policy mini-batch size", _either("sgd.minibatch")),
    Entry("Value mini-batch size", _key("value.sgd.minibatch")),
)
_PENALTY = Entry("Repeated action penalty", _key("repeat_penalty.amount", absent="0.0"))
_CLIP = Entry("Global gradient clipping", _either("sgd.max_gradient_norm", absent="off"))

TABLE1 = SettingsTable(
    "tab:main_hps",
    "Table 1: coarse search on Atari",
    atari.TABLE1,
    (
        *_FIRST,
        _RATE,
        *_LAMBDAS,
        *_EPOCHS,
        Entry("Distil epochs (E_D)", _third("sgd.epochs")),
        Entry("Distil beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Entry("Distil mini-batch size", _third("sgd.minibatch")),
        _PENALTY,
        _CLIP,
    ),
)
TABLE2 = SettingsTable(
    "tab:ppg_hps",
    "Table 2: PPG on Atari; all other settings as for DNA in table 1",
    atari.TABLE2,
    (
        Entry("Policy epochs (E_pi)", _either("sgd.epochs")),
        Entry("Value epochs (E_V)", _key("value.sgd.epochs")),
        Entry("Distil epochs (E_D)", _key("distil.sgd.epochs", absent="0")),
        Entry("Auxiliary epochs (E_aux)", _key("aux.sgd.epochs")),
        Entry("Auxiliary period (N_pi)", _key("aux.every")),
    ),
)


def _atari(show: Callable[[Any], str]) -> Cell:
    return lambda config: show(config.env.atari)


TABLE3 = SettingsTable(
    "tab:env_settings",
    "Table 3: settings of the Atari games",
    {"easy": atari.EASY["dna"], "hard": atari.TUNED["dna"]},
    (
        Entry("Terminal on loss of life", _atari(lambda a: str(a.life_loss == "terminal"))),
        Entry("Action space", _atari(lambda a: a.actions.capitalize())),
        Entry("Repeat action probability", _key("env.atari.sticky")),
        Entry(
            "Training frames",
            lambda config: f"{config.interactions * at(config, 'env.atari.skip') // 10**6}M",
        ),
        # This row and "Reward clipping" are not settings here.
        Entry("Color / grayscale", lambda _: "Grayscale"),
        Entry("Frame stacked", _key("env.atari.stack")),
        Entry("Action repetitions", _key("env.atari.skip")),
        Entry("Reward clipping", lambda _: "No"),
        Entry("Episode timeout", _atari(lambda a: f"{a.max_frames // 1000}K")),
        Entry("Resolution", _atari(lambda a: f"{a.size}x{a.size}")),
        Entry("Noop starts", _atari(lambda a: "-".join(str(n) for n in a.noops))),
    ),
)
TABLE6 = SettingsTable(
    "tab:mujoco_hps",
    "Table 6: MuJoCo",
    {name: mujoco.MUJOCO[name] for name in ("ppo", "dna")},
    (
        *_FIRST,
        Entry("Learning rate (annealed linearly to 0.0)", _either("sgd.learning_rate.start")),
        *_LAMBDAS,
        *_EPOCHS,
        Entry("Distil epochs (E_D)", _third("sgd.epochs")),
        Entry("Distil beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Entry("Distil/Aux mini-batch size", _third("sgd.minibatch")),
        _CLIP,
    ),
)
TABLE7 = SettingsTable(
    "tab:procgen_hps",
    "Table 7: Procgen",
    {name: procgen.PROCGEN[name] for name in ("ppo", "dna", "ppg")},
    (
        *_FIRST,
        _RATE,
        *_LAMBDAS,
        _PENALTY,
        *_EPOCHS,
        Entry("Distil/Aux epochs (E_D)", _third("sgd.epochs")),
        Entry("Distil/Aux beta (beta)", _third("beta")),
        *_MINIBATCHES,
        Entry("Distil/Aux mini-batch size", _third("sgd.minibatch")),
        _CLIP,
    ),
)

#: Name of a table in `dna show` → the table.
TABLES = {
    "table1": TABLE1,
    "table2": TABLE2,
    "table3": TABLE3,
    "table6": TABLE6,
    "table7": TABLE7,
}
