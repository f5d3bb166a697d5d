"""The profile `as_run`: the authors' code on any preset, and a reason for each change."""

import pytest

from dna.common.errors import BadInput
from dna.config.overrides import differences, tweak
from dna.config.presets import PRESETS, for_environment, preset, with_profile
from dna.config.presets.as_run import DEPARTURES, as_run, departures

#: Everywhere in the paper's presets that have the setting.
COMMON = {
    "normalize_observation.clip": (3.0, 5.0),
    "normalize_observation.gain": (1.0, 3.0),
    "normalize_reward.clip": (5.0, 10.0),
    "normalize_reward.episode_end": ("reset", "carry_last"),
}
WARM_UP = {"warm_up.low": (1, 0), "warm_up.actions": ("uniform", "policy")}
NO_WARM_UP = {
    "warm_up.low": (1, None),
    "warm_up.high": (1000, None),
    "warm_up.actions": ("uniform", None),
}
HALF = {"value.weight": (1.0, 0.5)}
DISTIL = HALF | {
    "distil.constraint": ("kl", "logit_mse"),
    "distil.weight": (1.0, 0.5),
    "distil.first": ("run", "skip"),
}
AUX = HALF | {"aux.variant": ("cobbe", "authors")}
ORIG = {
    "joint.epsilon": (0.1, None),
    "joint.epsilon.start": (None, 0.1),
    "joint.epsilon.end": (None, 0.0),
    "joint.entropy_bonus": (None, 0.01),
    "joint.entropy_bonus.start": (0.01, None),
    "joint.entropy_bonus.end": (0.0, None),
    "joint.value_weight": (1.0, 2.0),
}
TERMINAL = {"env.time_limit": ("bootstrap", "terminal")}


def gaussian(phase):
    return {
        f"{phase}.entropy_bonus": (0.01, 0.0),
        f"{phase}.surrogate": ("joint", "per_dimension"),
    }


MUJOCO = COMMON | NO_WARM_UP | TERMINAL
EXPECTED = {
    "tuned.dna": COMMON | WARM_UP | DISTIL,
    "tuned.ppo": COMMON | WARM_UP,
    "tuned.ppg": COMMON | WARM_UP | AUX,
    "easy.dna": COMMON | WARM_UP | DISTIL,
    "ablation.no_distil": COMMON | WARM_UP | HALF,
    "targets.features": COMMON | WARM_UP | DISTIL,
    "table1.ppo_orig": COMMON | WARM_UP | ORIG,
    "mujoco.dna": MUJOCO
    | DISTIL
    | gaussian("policy")
    | {"distil.constraint": ("mean_mse", "mean_mse_scaled")},
    "mujoco.ppo": MUJOCO | gaussian("joint"),
    "mujoco.ppg": MUJOCO | AUX | gaussian("policy"),
    "procgen.dna": COMMON | WARM_UP | DISTIL | TERMINAL,
    "procgen.ppo": COMMON | WARM_UP | TERMINAL,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_profile_sets_what_the_authors_code_does(name):
    assert differences(preset(name), as_run(preset(name))) == EXPECTED[name]


@pytest.mark.parametrize("name", PRESETS)
def test_each_change_has_its_row_and_applying_it_twice_changes_nothing_more(name):
    config = preset(name)
    rows, changed = departures(config), differences(config, as_run(config))
    covered = [path for path in changed for row in rows if f"{path}.".startswith(f"{row.key}.")]
    assert sorted(covered) == sorted(changed)
    assert len({row.key for row in rows}) == len(rows)
    assert departures(as_run(config)) == []


def test_every_row_is_used_and_explained():
    used = {
        row for config in PRESETS.values() for row in map(DEPARTURES.index, departures(config))
    }
    assert used == set(range(len(DEPARTURES)))
    for row in DEPARTURES:
        assert 10 < len(row.reason) <= 80
        assert row.paper != row.code


def test_rows_of_ppo_orig_touch_no_other_preset():
    touched = {
        name
        for name, config in PRESETS.items()
        for row in departures(config)
        if "PPO (orig)" in row.reason or row.key == "joint.value_weight"
    }
    assert touched == {"table1.ppo_orig"}


def test_what_is_not_the_papers_stays():
    own = tweak(preset("tuned.dna"), **{"normalize_observation.clip": 8.0, "warm_up": None})
    changed = differences(own, as_run(own))
    assert not any(path.startswith(("normalize_observation", "warm_up")) for path in changed)


def test_profiles_by_name():
    config = for_environment("ALE/Pong-v5", "dna", profile="as_run")
    assert config == tweak(as_run(preset("tuned.dna")), **{"env.id": "ALE/Pong-v5"})
    with pytest.raises(BadInput, match=r"^--profile as_rum: no such profile; did you mean"):
        with_profile(preset("tuned.dna"), "as_rum")
