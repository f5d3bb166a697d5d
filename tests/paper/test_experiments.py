"""Nothing of the paper is missing: every figure, table and claim has its experiment."""

from pathlib import Path

import pytest

from dna.common.errors import BadInput
from dna.config.overrides import tweak
from dna.config.presets import preset
from dna.envs.benchmark_scores import games, paper_table
from dna.paper.experiments import EXPERIMENTS, claims, experiment
from dna.paper.experiments import NOISE_SETTINGS as NOISE
from dna.paper.plan import MUJOCO, REFERENCE, SCALES, Limits, is_proxy, planned

LABELS = Path(__file__).with_name("labels.txt").read_text().split()
ALIASES = {
    "toy", "noise", "epochs", "lambda", "main", "ablation", "easy", "alternatives",
    "ppo-tuning", "targets", "mujoco", "procgen", "atari57", "time",
}  # fmt: skip


def test_all_figures_and_tables_are_covered_once():
    covered = [label for one in EXPERIMENTS for label in one.covers]
    wanted = {x for x in LABELS if x.startswith(("fig:", "tab:"))} - {"fig:dna_arch"}
    assert len(covered) == len(set(covered))
    assert set(covered) == wanted


def test_every_claim_is_bound_to_one_experiment():
    bound = [claim for one in EXPERIMENTS for claim in one.checks]
    assert len(bound) == len(set(bound))
    assert set(bound) == {row["id"] for row in paper_table("claims")} == set(claims())
    assert len(bound) == 138


def test_names_are_numbers_and_words():
    words = [word for one in EXPERIMENTS for word in (one.name, one.alias)]
    assert len(words) == len(set(words))
    assert set(words) >= ALIASES
    for number in (*range(4, 19), 1, 2):
        assert experiment(f"fig{number:02d}").covers
    for number in range(1, 11):
        assert experiment(f"tab{number:02d}").covers
    with pytest.raises(BadInput, match="did you mean 'epochs'"):
        experiment("epoch")


def configs(name, scale="paper"):
    return {(r.study, r.arm, r.env, r.seed): r.config for r in planned(experiment(name), scale)}


@pytest.mark.parametrize(
    ("name", "study", "arm", "wanted"),
    [
        ("main", "main", "DNA", "tuned.dna"),
        ("main", "main", "PPO (2x)", "tuned.ppo"),
        ("main", "main", "PPG", "tuned.ppg"),
        ("ablation", "ablation", "DNA (no distil)", "ablation.no_distil"),
        ("ablation", "ablation", "DNA (mb=512)", "ablation.mb512"),
        ("ablation", "ablation", "DNA (λ=0.95)", "ablation.lambda_equal"),
        ("ablation", "ablation", "PPO (basic)", "tuned.ppo_basic"),
        ("easy", "easy", "DNA", "easy.dna"),
        ("alternatives", "alternatives", "PPO (E=2)", "tuned.ppo_e2"),
        ("alternatives", "alternatives", "PPO (orig)", "table1.ppo_orig"),
        ("alternatives", "alternatives", "PPO (λ_V=0.95, λ_π=0.8)", "tuned.ppo_lambda"),
        ("alternatives", "ppg", "PPG (tuned)", "table2.ppg_tuned"),
        ("targets", "targets", "none", "targets.none"),
        ("targets", "targets", "projection", "targets.projection"),
        ("targets", "targets", "features", "targets.features"),
        ("mujoco", "mujoco", "DNA", "mujoco.dna"),
        ("procgen", "procgen", "PPO", "procgen.ppo"),
        ("atari57", "easy", "PPO (2x)", "easy.ppo"),
    ],
)
def test_at_the_papers_size_an_arm_is_the_papers_preset(name, study, arm, wanted):
    found = {key: c for key, c in configs(name).items() if key[:2] == (study, arm)}
    assert found
    for (_, _, env, _), config in found.items():
        assert config == tweak(preset(wanted), **{"env.id": env})


def test_the_noise_runs_are_the_coarse_settings_with_the_noise_measured():
    for (_, _, env, _), config in configs("noise").items():
        assert config == tweak(preset("table1.dna"), **{"env.id": env, "noise": NOISE})
    assert len(configs("noise")) == 3
    assert (NOISE["every"], NOISE["first"]) == (2, 10)


def test_short_noise_runs_are_measured_in_every_iteration():
    """19 iterations: every second one would leave nine measurements, five for a level."""
    for config in configs("noise", "small").values():
        assert (config.noise.every, config.noise.samples, config.noise.b_small) == (1, 64, 32)


def test_sweeps_vary_one_setting():
    epochs = {arm: config for (study, arm, *_), config in configs("epochs").items()}
    assert len(epochs) == 13
    for arm, config in epochs.items():
        name, _, count = arm.partition("=")
        phase = {"E_V": "value", "E_π": "policy", "E_D": "distil"}[name]
        found = {p.name: p.sgd.epochs for p in config.phases}
        assert found[phase] == int(count)
        assert (config.returns.lambda_pi, config.returns.lambda_v) == (0.95, 0.95)
    lambdas = {arm: c.returns for (study, arm, *_), c in configs("lambda").items()}
    assert lambdas["λ_π=0.8 λ_V=0.95"].lambda_pi == 0.8
    assert len({(r.lambda_pi, r.lambda_v) for r in lambdas.values()}) == 10


def named(config):
    """What names of PPO's and PPG's arms speak of."""
    joint = [
        phase.sgd.minibatch / config.batch for phase in config.phases if phase.name == "joint"
    ]
    return {
        "epochs": {phase.name: phase.sgd.epochs for phase in config.phases},
        "lambda": (config.returns.lambda_pi, config.returns.lambda_v),
        "channels": config.network.channels,
        "share of a rollout": joint,
    }


@pytest.mark.parametrize(
    "name", ["main", "easy", "alternatives", "ppo-tuning", "atari57", "time"]
)
def test_a_proxys_ppo_and_ppg_are_what_their_names_say(name):
    """So arm and reference differ as in the paper, whatever the proxy's preset has."""
    paper = {(study, arm): named(c) for (study, arm, *_), c in configs(name).items()}
    small = {(study, arm): named(c) for (study, arm, *_), c in configs(name, "small").items()}
    others = {key for key in paper if "DNA" not in key[1] and "λ_π=" not in key[1][:4]}
    assert others
    for key in others:
        assert small[key] == paper[key], key


def test_the_proxys_original_ppo_differs_from_tuned_ppo_as_the_papers_does():
    arms = {arm: c for (_, arm, env, _), c in configs("alternatives", "small").items()}
    ours, theirs = arms["PPO (orig)"].phases[0], arms["PPO (2x)"].phases[0]
    assert (ours.epsilon, theirs.epsilon, ours.value_weight) == (0.1, 0.2, 1.0)
    assert ours.sgd.learning_rate.start == theirs.sgd.learning_rate
    assert ours.entropy_bonus.start == theirs.entropy_bonus
    assert (ours.sgd.learning_rate.end, ours.entropy_bonus.end) == (0.0, 0.0)


def digests(name, scale):
    return {run.digest for run in planned(experiment(name), scale)}


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_what_two_figures_need_is_one_run(scale):
    """Figure 7's reference is figure 6's DNA."""
    assert len(digests("main", scale) & digests("ablation", scale)) == (15)
    assert digests("noise", scale) <= digests("lambda", scale)
    assert digests("main", scale) & digests("time", scale)


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_has_a_plan_at_every_scale(one, scale):
    runs = planned(one, scale)
    assert bool(runs) == bool(one.studies)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    for run in runs:
        if scale == "paper":
            assert not run.env.startswith("MinAtar")
        elif is_proxy(one, scale) and run.study != "noise":
            assert run.env.startswith("MinAtar/")
    if scale == "smoke":
        assert all(run.config.interactions <= 512 for run in runs)


def test_numbers_of_runs_are_the_papers():
    count = {one.alias: len(planned(one, "paper")) for one in EXPERIMENTS}
    assert count["main"] == 3 * 5 * 3
    assert count["ablation"] == 5 * 5 * 3
    assert count["mujoco"] == 2 * 8 * 30 + 2 * 30
    assert count["procgen"] == 2 * 16
    assert count["atari57"] == 2 * 57 * 2
    assert count["targets"] == 4 * 3


def test_a_plan_can_be_cut_short():
    runs = planned(experiment("main"), "small", Limits(seeds=1, interactions=8192))
    assert {run.seed for run in runs} == {0}
    assert {run.config.interactions for run in runs} == {8192}


def test_worlds_are_the_papers():
    main = planned(experiment("main"), "paper")
    assert {run.env for run in main} == {f"ALE/{game}-v5" for game in games("Atari-5")}
    assert len(MUJOCO) == 8
    assert set(REFERENCE) == {"Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"}
