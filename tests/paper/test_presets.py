"""Presets are the paper's: its five settings tables cell by cell, then what its text says.

Lines quoted are of the paper; appendices are lettered as it letters them.
"""

import csv
import json
from importlib import resources

import pytest

from dna.common.errors import BadInput
from dna.config import Atari, Config, json_tree
from dna.config.overrides import at, differences, digest, from_tree, tweak
from dna.config.presets import FAMILIES, PREFIXES, PRESETS, for_environment, preset
from dna.config.presets.atari import HARD, easy
from dna.config.presets.tables import TABLES

FILES = {
    "table1": "hyperparameters_atari.csv",
    "table2": "hyperparameters_ppg.csv",
    "table3": "environment_settings.csv",
    "table6": "hyperparameters_mujoco.csv",
    "table7": "hyperparameters_procgen.csv",
}
EASY = Atari(life_loss="terminal", actions="minimal", sticky=0.0)
ATARI = ("tuned", "easy", "table1", "table2", "ablation", "targets")
PAPER = (*ATARI, "mujoco", "procgen")
OF_PAPER = {name: config for name, config in PRESETS.items() if name.split(".")[0] in PAPER}


def printed(name):
    """The paper's table: one mapping per row, symbols beside their setting."""
    text = resources.files("dna").joinpath("paper", "data", FILES[name]).read_text()
    for row in csv.DictReader(text.splitlines()):
        symbol = row.pop("symbol", "")
        row["setting"] += f" ({symbol})" if symbol else ""
        yield row


def number(cell):
    """Cells are compared as numbers where they are numbers: 2.5e-4 is 0.00025."""
    factor, _, rest = cell.rpartition("*")
    try:
        return factor, float(rest)
    except ValueError:
        return factor, rest


CELLS = [
    (name, row["setting"], column)
    for name in FILES
    for row in printed(name)
    for column in row
    if column != "setting"
]


@pytest.mark.parametrize("name", FILES)
def test_a_cell_of_a_settings_table_is_the_papers(name):
    theirs = {row["setting"]: row for row in printed(name)}
    ours = {row["setting"]: row for row in TABLES[name].cells()}
    for _, setting, column in (cell for cell in CELLS if cell[0] == name):
        mine, yours = ours[setting][column], theirs[setting][column]
        assert number(mine) == number(yours), f"{setting}, {column}"


@pytest.mark.parametrize("name", FILES)
def test_a_settings_table_has_the_papers_layout(name):
    theirs, ours = list(printed(name)), TABLES[name].cells()
    assert set(FILES) == set(TABLES)
    assert [list(row) for row in ours] == [list(row) for row in theirs]
    assert [row["setting"] for row in ours] == [row["setting"] for row in theirs]


def test_the_tables_are_all_read():
    assert len(CELLS) == 3 * 17 + 2 * 5 + 2 * 11 + 2 * 16 + 3 * 17
    labels = {table.label for table in TABLES.values()}
    assert labels == {
        "tab:main_hps", "tab:ppg_hps", "tab:env_settings", "tab:mujoco_hps", "tab:procgen_hps",
    }  # fmt: skip


def test_one_number_of_a_table_holds_for_every_phase():
    """The tables have one row for the learning rate and the clip, we have one per phase."""
    for name, config in OF_PAPER.items():
        assert len({str(phase.sgd.learning_rate) for phase in config.phases}) == 1, name
        assert len({phase.sgd.max_gradient_norm for phase in config.phases}) == 1, name


# ── what surrounds the tables ─────────────────────────────────────────────────────────────


def test_implementation_choices_of_appendix_a_are_in_every_preset():
    """ "We ran all experiments (PPO, DNA, PPG) using these same implementation choices." """
    for name, config in OF_PAPER.items():
        assert (config.normalize_observation.clip, config.normalize_observation.gain) == (
            3.0,
            1.0,
        ), name
        assert config.normalize_reward.clip == 5.0, name
        assert json_tree(config)["warm_up"] == {"low": 1, "high": 1000, "actions": "uniform"}, (
            name
        )
        assert config.network.init == "authors", name
        penalty = (
            None if name.startswith(("mujoco", "procgen")) else {"amount": 0.25, "after": 100}
        )
        assert json_tree(config)["repeat_penalty"] == penalty, name


def test_environments_budgets_and_encoders():
    for name, config in OF_PAPER.items():
        family = name.split(".")[0]
        if family in ATARI:
            assert config.env.atari == (EASY if family == "easy" else HARD), name
            assert config.env.time_limit == "terminal", name
            assert (config.interactions, config.network.encoder) == (50_000_000, "nature"), name
        elif family == "mujoco":
            assert config.env.time_limit == "bootstrap", name
            assert (config.interactions, config.network.encoder) == (1_000_000, "mlp"), name
            assert (config.network.width, config.network.depth) == (64, 2), name
            assert all(phase.sgd.learning_rate.end == 0 for phase in config.phases), name
        else:
            assert at(config, "env.procgen") == {
                "distribution": "hard", "num_levels": 0, "start_level": 0,
            }  # fmt: skip
            assert (config.interactions, config.network.encoder) == (100_000_000, "impala"), (
                name
            )
            assert (
                tweak(config, **{"env.procgen.num_levels": 200}).env.procgen.num_levels == 200
            ), name


# ── section 6 and the appendices ──────────────────────────────────────────────────────────


def epochs(config):
    return [phase.sgd.epochs for phase in config.phases]


def minibatches(config):
    return [phase.sgd.minibatch for phase in config.phases]


def lambdas(config):
    return config.returns.lambda_pi, config.returns.lambda_v


def test_tuned_dna_is_what_section_6_selected():
    """ "We selected E_π=2, E_V=1, E_D=2"; "λ_V=0.95, λ_π=0.8 outperformed" (6.1, 6.2)."""
    config = preset("tuned.dna")
    assert (epochs(config), lambdas(config)) == ([2, 1, 2], (0.8, 0.95))
    assert minibatches(config) == [2048, 512, 512]
    assert set(differences(preset("table1.dna"), config)) == {
        "value.sgd.epochs",
        "returns.lambda_pi",
    }


def test_tuned_ppo_is_what_appendix_i_selected():
    """ "The best performing model, which was found to be λ=0.95, and E_π=1"."""
    config = preset("tuned.ppo")
    assert (epochs(config), lambdas(config), config.network.channels) == ([1], (0.95, 0.95), 2)
    assert differences(preset("table1.ppo"), config) == {"joint.sgd.epochs": (2, 1)}


def test_ppg_of_the_main_experiment_has_cobbes_epochs():
    """ "In our main experiment we evaluated PPG using E_π=1, E_V=1, E_aux=6" (appendix G)."""
    config = preset("tuned.ppg")
    assert (epochs(config), minibatches(config)) == ([1, 1, 6], [2048, 512, 512])
    assert lambdas(config) == (0.95, 0.95)
    assert config == preset("table2.ppg")
    tuned = preset("table2.ppg_tuned")
    assert epochs(tuned) == [2, 1, 2]
    assert set(differences(config, tuned)) == {"policy.sgd.epochs", "aux.sgd.epochs"}


def test_ppg_on_atari_is_dna_but_for_its_phases():
    """ "All other hyperparameters were set according to the DNA settings in Table 1"."""
    dna, ppg = json_tree(preset("table1.dna")), json_tree(preset("table2.ppg"))
    assert {key: dna[key] for key in dna if key != "phases"} == {
        key: ppg[key] for key in ppg if key != "phases"
    }
    phase = dict(ppg["phases"][0])
    assert phase | {"sgd": None} == dna["phases"][0] | {"sgd": None}


@pytest.mark.parametrize(
    ("name", "reference", "changes"),
    [
        # Appendix C.
        ("ablation.mb512", "tuned.dna", {"policy.sgd.minibatch": (2048, 512)}),
        ("ablation.lambda_equal", "tuned.dna", {"returns.lambda_pi": (0.8, 0.95)}),
        # Appendix G.
        ("tuned.ppo_e2", "tuned.ppo", {"joint.sgd.epochs": (1, 2)}),
        ("tuned.ppo_lambda", "tuned.ppo", {"returns.lambda_pi": (0.95, 0.8)}),
        ("tuned.ppo_1x", "tuned.ppo", {"network.channels": (2, 1)}),
        # Appendix J, beside the value as target.
        ("targets.projection", "targets.value", {"distil.target": ("value", "projection")}),
        ("targets.features", "targets.value", {"distil.target": ("value", "features")}),
    ],
)
def test_a_variant_is_one_change_away(name, reference, changes):
    assert differences(preset(reference), preset(name)) == changes


@pytest.mark.parametrize(
    ("name", "reference"),
    [("ablation.no_distil", "tuned.dna"), ("targets.none", "targets.value")],
)
def test_no_distillation_is_one_phase_less(name, reference):
    changes = differences(preset(reference), preset(name))
    both = ["policy", "value"]
    assert changes.pop("phases") == ([*both, "distil"], both)
    assert changes.pop("distil.kind") == ("distil", None)
    assert all(key.startswith("distil.") for key in changes)
    assert {theirs for _, theirs in changes.values()} == {None}


def test_all_three_minibatches_of_the_ablation_are_512():
    assert minibatches(preset("ablation.mb512")) == [512, 512, 512]


def test_ppo_basic_is_dna_with_all_novel_components_turned_off():
    """ "A single network with the Nature-CNN encoder, and a mini-batch size of 512"."""
    config, dna = preset("tuned.ppo_basic"), preset("tuned.dna")
    assert (epochs(config), minibatches(config)) == ([2], [512])
    assert (lambdas(config), config.network) == ((0.95, 0.95), dna.network)


def test_distillation_targets_ran_between_the_two_sweeps():
    """ "Distillation was trained on two passes"; λ was tuned only later."""
    config = preset("targets.value")
    assert (epochs(config), lambdas(config)) == ([2, 1, 2], (0.95, 0.95))
    assert digest(config) == digest(preset("ablation.lambda_equal")), "one run serves both"


@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
def test_easy_presets_are_the_tuned_ones_with_three_rows_changed(algorithm):
    changes = {
        "env.atari.life_loss": ("continue", "terminal"),
        "env.atari.actions": ("full", "minimal"),
        "env.atari.sticky": (0.25, 0.0),
    }
    tuned = preset(f"tuned.{algorithm}")
    assert differences(tuned, preset(f"easy.{algorithm}")) == changes
    assert easy(tuned) == preset(f"easy.{algorithm}")


def test_distillation_on_mujoco_keeps_the_centers():
    """ "Replaced it with the mean-squared error between the center of the Gaussian" (K)."""
    assert at(preset("mujoco.dna"), "distil.constraint") == "mean_mse"
    others = [name for name in OF_PAPER if name != "mujoco.dna"]
    constraints = [p.constraint for n in others for p in preset(n).phases if p.kind == "distil"]
    assert set(constraints) == {"kl"}


# ── every preset ──────────────────────────────────────────────────────────────────────────


def test_a_preset_validates_and_survives_json():
    for name, config in PRESETS.items():
        assert isinstance(config, Config), name
        assert from_tree(json.loads(json.dumps(json_tree(config)))) == config, name


def test_every_family_an_id_leads_to_has_the_three_algorithms():
    for family in {*PREFIXES.values(), "small"}:
        presets = FAMILIES[family].presets
        assert {name: presets[name].algorithm for name in ("dna", "ppo", "ppg")} == {
            "dna": "dna", "ppo": "ppo", "ppg": "ppg",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("env_id", "family"),
    [
        ("ALE/Breakout-v5", "tuned"),
        ("procgen/coinrun", "procgen"),
        *((f"{task}-v5", "mujoco") for task in ("Ant", "HalfCheetah", "Hopper", "Reacher")),
        *((f"{task}-v5", "mujoco") for task in ("Swimmer", "Walker2d", "InvertedPendulum")),
        *((f"{task}-v5", "mujoco") for task in ("InvertedDoublePendulum", "Humanoid")),
        *((f"{task}-v5", "mujoco") for task in ("HumanoidStandup", "Pusher")),
        ("AntMaze_UMaze-v5", "small"),
        ("Pendulum-v1", "pendulum"),
        ("MinAtar/Freeway-v1", "minatar_freeway"),
    ],
)
def test_an_id_leads_to_its_family(env_id, family):
    for algorithm in (None, "dna", "ppo", "ppg"):
        config = for_environment(env_id, algorithm)
        reference = preset(f"{family}.{algorithm or 'dna'}")
        assert differences(reference, config) == {"env.id": (None, env_id)}, algorithm


def test_variants_answer_to_their_algorithm():
    assert for_environment("ALE/Pong-v5", "ppo", "tuned.ppo_1x").network.channels == 1
    with pytest.raises(BadInput, match="contradicts"):
        for_environment("ALE/Pong-v5", "dna", "tuned.ppo_1x")


@pytest.mark.parametrize("name", ["tuned.dna", "procgen.ppo"])
def test_a_preset_of_another_environment_is_refused_in_one_line(name):
    with pytest.raises(BadInput, match=f"^--preset {name}: env.*not for CartPole-v1$"):
        for_environment("CartPole-v1", name=name)
