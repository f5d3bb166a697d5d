"""Every figure and table of the paper as an experiment: its arms and the studies they are in.

`dna reproduce NAME` runs one, `dna list experiments` lists them. Names are the paper's numbers;
`ALSO` says which experiment covers a figure or table that shares another's runs. The claims
that an experiment tests are in `dna.paper.claims.table`.
"""

from typing import Any

from dna.common.errors import BadInput
from dna.common.messages import nearest, quoted
from dna.paper import toy
from dna.paper.claims import noise
from dna.paper.claims.table import CLAIMS
from dna.paper.plan import (
    ATARI_3_VAL,
    ATARI_5,
    ATARI_57,
    MUJOCO_8,
    NOISE_3_VAL,
    PROCGEN_16,
    WALKER,
    Arm,
    ArmStudy,
    Experiment,
)

# --- Figure 1: the toy problem (section 3.1); it trains no agent and has no runs -----------

TOY = Experiment(
    name="fig01",
    alias="toy",
    title="Destructive interference on a toy problem",
    covers=("fig:toy_noise",),
    extra={"toy": toy.measure},
    checks=CLAIMS["fig01"],
)

# --- Figures 2 and 8: gradient noise of the three phases (section 3.2, appendix D) ---------
#
# The coarse settings of table 1 on the three validation games, one seed. At the weights of
# these runs the noise is measured against λ as well (section 6.2, the lower panels of figure
# 5).

#: As the authors measured: 16 small mini-batches, every second iteration and the first ten.
NOISE_SETTINGS = {"every": 2, "first": 10, "samples": 16, "b_small": 32}
#: At small scale there are only 19 iterations: all are measured, and more precisely.
NOISE_SHORTENED = {"noise.every": 1, "noise.samples": 64}
NOISE_ARM = Arm(
    noise.ARM, "table1.dna", changes={"noise": NOISE_SETTINGS}, shortened=NOISE_SHORTENED
)
NOISE = Experiment(
    name="fig02",
    alias="noise",
    title="Noise scale of policy, value and distillation",
    covers=("fig:noise_scale", "fig:distil_noise"),
    studies=(ArmStudy(noise.STUDY, (NOISE_ARM,), NOISE_3_VAL, seeds=1),),
    extra={"lambda_noise": noise.measure_lambdas},
    checks=CLAIMS["fig02"],
)

# --- Figure 4: numbers of epochs (section 6.1) --------------------------------------------
#
# E_V is swept first (E_π = E_D = 2), then E_π (E_V = 1, E_D = 2), then E_D including none. The
# sweeps came before that of λ: both λ are .95 (table 1), on the proxy as well.


def _epochs_arm(name: str, **epochs: int) -> Arm:
    changes: dict[str, Any] = {"returns.lambda_pi": 0.95}
    changes |= {f"{phase}.sgd.epochs": count for phase, count in epochs.items()}
    return Arm(name, "tuned.dna", changes=changes)


_VALUE = tuple(_epochs_arm(f"E_V={e}", policy=2, value=e, distil=2) for e in (1, 2, 3, 4))
_POLICY = tuple(_epochs_arm(f"E_π={e}", policy=e, value=1, distil=2) for e in (1, 2, 3, 4))
_DISTIL = tuple(_epochs_arm(f"E_D={e}", policy=2, value=1, distil=e) for e in (0, 1, 2, 3, 4))
EPOCHS = Experiment(
    name="fig04",
    alias="epochs",
    title="DNA with other numbers of epochs",
    covers=("fig:dna_tuning",),
    studies=(
        ArmStudy("value", _VALUE, ATARI_3_VAL, seeds=3),
        ArmStudy("policy", _POLICY, ATARI_3_VAL, seeds=3),
        ArmStudy("distil", _DISTIL, ATARI_3_VAL, seeds=3),
    ),
    checks=CLAIMS["fig04"],
)

# --- Figure 6: DNA, PPO (2x) and PPG on Atari-5, hard settings (section 6.3) ---------------

#: Tuned DNA distils for two epochs; the proxy's preset for one.
DNA_SMALL = {"distil.sgd.epochs": 2}
DNA = Arm("DNA", "tuned.dna", small=DNA_SMALL)
#: Tuned PPO as in the paper: one epoch, equal λ. The proxy's preset has DNA's values instead.
PPO_SMALL = {"joint.sgd.epochs": 1, "returns.lambda_pi": 0.95}
PPO_WIDE = PPO_SMALL | {"network.channels": 2}
PPO = Arm("PPO (2x)", "tuned.ppo", "ppo", small=PPO_WIDE)
PPG = Arm(
    "PPG",
    "tuned.ppg",
    "ppg",
    small={"policy.sgd.epochs": 1, "aux.sgd.epochs": 6, "returns.lambda_pi": 0.95},
)
MAIN = Experiment(
    name="fig06",
    alias="main",
    title="DNA, PPO and PPG on Atari-5",
    covers=("fig:final_plot",),
    studies=(ArmStudy("main", (DNA, PPO, PPG), ATARI_5, seeds=3),),
    checks=CLAIMS["fig06"],
)

# --- Figure 5: λ_π and λ_V, and what λ does to the noise (section 6.2) ---------------------
#
# Scores: λ_π over five values, with λ_V = .95 and, again, with .8. Noise: at the weights of
# figure 2's runs, with returns re-estimated for each λ. It is measured once, and the claims
# about it are figure 2's.


def _lambda_arm(pi: float, v: float) -> Arm:
    changes = {"returns.lambda_pi": pi, "returns.lambda_v": v}
    return Arm(f"λ_π={pi:g} λ_V={v:g}", "tuned.dna", changes=changes, small=DNA_SMALL)


_LAMBDAS = (0.6, 0.8, 0.9, 0.95, 0.975)
_HIGH_LAMBDA_V = tuple(_lambda_arm(pi, 0.95) for pi in _LAMBDAS)
_LOW_LAMBDA_V = tuple(_lambda_arm(pi, 0.8) for pi in _LAMBDAS)
LAMBDA = Experiment(
    name="fig05",
    alias="lambda",
    title="DNA with other λ_π and λ_V",
    covers=("fig:dna_lambda",),
    studies=(
        ArmStudy("lambda", (*_HIGH_LAMBDA_V, *_LOW_LAMBDA_V), ATARI_3_VAL, seeds=5),
        *NOISE.studies,
    ),
    extra=NOISE.extra,
    checks=CLAIMS["fig05"],
)

# --- Figures 9 and 16 to 18: easy settings (appendices F and M), 57 games (appendix M) -----
#
# The proxy has no lives, no sticky actions to switch off and no action set to reduce: on it,
# easy and hard settings are the same runs.

_EASY_ARMS = (
    Arm("DNA", "easy.dna", small=DNA_SMALL),
    Arm("PPO (2x)", "easy.ppo", "ppo", small=PPO_WIDE),
)
EASY = Experiment(
    name="fig09",
    alias="easy",
    title="DNA and PPO on Atari-5, easy settings",
    covers=("fig:easy_plot",),
    studies=(
        ArmStudy("easy", _EASY_ARMS, ATARI_5, seeds=3),
        ArmStudy("hard", (DNA, PPO), ATARI_5, seeds=3),  # figure 6's runs
    ),
    checks=CLAIMS["fig09"],
)
ALL_GAMES = Experiment(
    name="fig16",
    alias="atari57",
    title="DNA and PPO on 57 Atari games",
    covers=(
        "fig:a57_median_plot",
        "fig:a57_dna_hard",
        "fig:a57_dna_easy",
        "tab:a57_summary",
        "tab:a57_full_hard",
        "tab:a57_full_easy",
    ),
    studies=(
        ArmStudy("hard", (DNA, PPO), ATARI_57, seeds=1, small_seeds=3),
        ArmStudy("easy", _EASY_ARMS, ATARI_57, seeds=1, small_seeds=3),
    ),
    checks=CLAIMS["fig16"],
)

# --- Figure 10: alternative settings of PPO, and tuned PPG (appendix G) --------------------
#
# On the proxy every arm has the values that its name states, and otherwise those of PPO (2x).

PPO_E2 = Arm("PPO (E=2)", "tuned.ppo_e2", "ppo", small=PPO_WIDE | {"joint.sgd.epochs": 2})
PPO_LAMBDAS = Arm(
    "PPO (λ_V=0.95, λ_π=0.8)",
    "tuned.ppo_lambda",
    "ppo",
    small=PPO_WIDE | {"returns.lambda_pi": 0.8},
)
PPO_NARROW = Arm("PPO (1x)", "tuned.ppo_1x", "ppo", small=PPO_SMALL)
#: 8 agents, three epochs of mini-batches of 256, everything annealed, from the same values as
#: the reference. (The paper's has γ = .99 and the others .999: the proxy has .99 throughout.)
PPO_ORIG = Arm(
    "PPO (orig)",
    "table1.ppo_orig",
    "ppo",
    small={
        "agents": 8,
        "horizon": 128,
        "joint.sgd.epochs": 3,
        "joint.sgd.minibatch": 256,
        "joint.sgd.learning_rate": {"start": 2e-3, "end": 0.0},
        "joint.epsilon": 0.1,
        "joint.entropy_bonus": {"start": 0.1, "end": 0.0},
        "joint.value_weight": 1.0,
        "returns.lambda_pi": 0.95,
    },
)
PPG_TUNED = Arm(
    "PPG (tuned)",
    "table2.ppg_tuned",
    "ppg",
    small={"policy.sgd.epochs": 2, "aux.sgd.epochs": 2, "returns.lambda_pi": 0.95},
)
ALTERNATIVES = Experiment(
    name="fig10",
    alias="alternatives",
    title="Alternative settings of PPO and PPG",
    covers=("fig:aux_results",),
    studies=(
        ArmStudy(
            "alternatives", (PPO, PPO_E2, PPO_LAMBDAS, PPO_NARROW, PPO_ORIG), ATARI_5, seeds=3
        ),
        ArmStudy("ppg", (PPG, PPG_TUNED), ATARI_5, seeds=3),
    ),
    checks=CLAIMS["fig10"],
)

# --- Figure 11: PPO (2x) with other numbers of epochs and other λ (appendix I) -------------

_PPO_EPOCHS = tuple(
    Arm(
        f"E={e}",
        "tuned.ppo",
        "ppo",
        changes={"joint.sgd.epochs": e},
        small={"returns.lambda_pi": 0.95, "network.channels": 2},
    )
    for e in (1, 2, 3, 4)
)
_PPO_LAMBDA_ARMS = tuple(
    Arm(
        f"λ={value:g}",
        "tuned.ppo",
        "ppo",
        changes={"returns.lambda_pi": value, "returns.lambda_v": value},
        small={"joint.sgd.epochs": 1, "network.channels": 2},
    )
    for value in _LAMBDAS
)
PPO_TUNING = Experiment(
    name="fig11",
    alias="ppo-tuning",
    title="PPO with other numbers of epochs and other λ",
    covers=("fig:ppo_hps",),
    studies=(
        ArmStudy("epochs", _PPO_EPOCHS, ATARI_3_VAL, seeds=3),
        ArmStudy("lambda (ppo)", _PPO_LAMBDA_ARMS, ATARI_3_VAL, seeds=3),
        ArmStudy("lambda", _HIGH_LAMBDA_V, ATARI_3_VAL, seeds=3),  # figure 5's runs
    ),
    checks=CLAIMS["fig11"],
)

# --- Figure 12: distillation targets (appendix J) -----------------------------------------
#
# As in appendix J, on the proxy as well: both λ are .95, and distillation has two epochs.

_NO_TARGET = {"returns.lambda_pi": 0.95}
_TARGET = _NO_TARGET | {"distil.sgd.epochs": 2}
TARGETS = Experiment(
    name="fig12",
    alias="targets",
    title="Distillation targets",
    covers=("fig:distil_target",),
    studies=(
        ArmStudy(
            "targets",
            (
                Arm("none", "targets.value", small=_NO_TARGET, without="distil"),
                Arm("value", "targets.value", small=_TARGET),
                Arm(
                    "projection",
                    "targets.projection",
                    changes={"distil.target": "projection"},
                    small=_TARGET,
                ),
                Arm(
                    "features",
                    "targets.features",
                    changes={"distil.target": "features"},
                    small=_TARGET,
                ),
            ),
            ATARI_3_VAL,
            seeds=1,
            small_seeds=3,
        ),
    ),
    checks=CLAIMS["fig12"],
)

# --- Figure 13 and table 6: eight tasks of MuJoCo (appendix K) -----------------------------

_MUJOCO_DNA = Arm("DNA", "mujoco.dna")
_MUJOCO_PPO = Arm("PPO", "mujoco.ppo", "ppo")
_MUJOCO_LOW = Arm("DNA (λ_π=0.8)", "mujoco.dna", changes={"returns.lambda_pi": 0.8})
MUJOCO = Experiment(
    name="fig13",
    alias="mujoco",
    title="DNA and PPO on MuJoCo",
    covers=("fig:mujoco", "tab:mujoco_hps"),
    studies=(
        ArmStudy("mujoco", (_MUJOCO_DNA, _MUJOCO_PPO), MUJOCO_8, seeds=30),
        ArmStudy("lambda", (_MUJOCO_DNA, _MUJOCO_LOW), WALKER, seeds=30),
    ),
    checks=CLAIMS["fig13"],
)

# --- Figures 14 and 15 and table 7: Procgen (appendix L) -----------------------------------

PROCGEN = Experiment(
    name="fig14",
    alias="procgen",
    title="DNA and PPO on Procgen",
    covers=("fig:procgen", "fig:procgen_all", "tab:procgen_hps"),
    studies=(
        ArmStudy(
            "procgen",
            (Arm("DNA", "procgen.dna"), Arm("PPO", "procgen.ppo", "ppo")),
            PROCGEN_16,
            seeds=1,
        ),
    ),
    checks=CLAIMS["fig14"],
)

# --- Tables 1 to 3: settings, identities and construction; nothing is trained --------------

SETTINGS = Experiment(
    name="tab01",
    alias="settings",
    title="Settings tables, identities and construction",
    covers=("tab:main_hps", "tab:ppg_hps", "tab:env_settings"),
    checks=CLAIMS["tab01"],
)

# --- Figure 7 and table 4: DNA with one component removed at a time (appendix C) -----------

NO_DISTIL = Arm("DNA (no distil)", "tuned.dna", without="distil")
#: All phases with the value phase's mini-batch.
MB_512 = Arm(
    "DNA (mb=512)",
    "tuned.dna",
    paper={"policy.sgd.minibatch": 512},
    small=DNA_SMALL | {"policy.sgd.minibatch": 256},
    proxy_note="DNA (mb=512) on the proxy: the policy's mini-batch is 256 and not 512, half of "
    "DNA's (in the paper 512 and not 2,048, a quarter); PPO (basic) is scaled in the same way",
)
EQUAL_LAMBDA = Arm(
    "DNA (λ=0.95)", "tuned.dna", changes={"returns.lambda_pi": 0.95}, small=DNA_SMALL
)
PPO_BASIC = Arm(
    "PPO (basic)",
    "tuned.ppo_basic",
    "ppo",
    small={"joint.sgd.minibatch": 256, "returns.lambda_pi": 0.95},
)
ABLATION = Experiment(
    name="tab04",
    alias="ablation",
    title="Ablation of DNA",
    covers=("fig:abl_results", "tab:abl_results"),
    studies=(
        ArmStudy(
            "ablation", (DNA, NO_DISTIL, MB_512, EQUAL_LAMBDA, PPO_BASIC), ATARI_5, seeds=3
        ),
    ),
    checks=CLAIMS["tab04"],
)

# --- Table 5: training times (appendix H), from the runs of figures 6 and 10 ---------------

TIME = Experiment(
    name="tab05",
    alias="time",
    title="Training times",
    covers=("tab:training_times",),
    studies=(ArmStudy("time", (DNA, PPO, PPG, PPO_ORIG), ATARI_5, seeds=3),),
    checks=CLAIMS["tab05"],
)

# --- Finding an experiment ----------------------------------------------------------------

EXPERIMENTS: tuple[Experiment, ...] = (
    TOY,  # figure 1
    NOISE,  # figures 2 and 8
    EPOCHS,  # figure 4
    LAMBDA,  # figure 5
    MAIN,  # figure 6
    EASY,  # figure 9
    ALTERNATIVES,  # figure 10
    PPO_TUNING,  # figure 11
    TARGETS,  # figure 12
    MUJOCO,  # figure 13, table 6
    PROCGEN,  # figures 14 and 15, table 7
    ALL_GAMES,  # figures 16 to 18, tables 8 to 10
    SETTINGS,  # tables 1 to 3
    ABLATION,  # figure 7, table 4
    TIME,  # table 5
)
#: Figures and tables that share another's runs → that experiment.
ALSO = {
    "fig07": "tab04",
    "fig08": "fig02",
    "fig15": "fig14",
    "fig17": "fig16",
    "fig18": "fig16",
    "tab02": "tab01",
    "tab03": "tab01",
    "tab06": "fig13",
    "tab07": "fig14",
    "tab08": "fig16",
    "tab09": "fig16",
    "tab10": "fig16",
}
#: Figures that cannot be run.
DRAWN = {"fig03": "figure 3 of the paper is a drawing of the architecture: nothing to run"}


def experiment(name: str) -> Experiment:
    """Find an experiment by number or alias; the error names the nearest one."""
    if name in DRAWN:
        raise BadInput(f"{quoted(name)}: {DRAWN[name]}")
    wanted = ALSO.get(name, name)
    for one in EXPERIMENTS:
        if wanted in (one.name, one.alias):
            return one
    known = [*ALSO, *(word for one in EXPERIMENTS for word in (one.name, one.alias))]
    hint = nearest(name, known) or "; `dna list experiments` shows all"
    raise BadInput(f"{quoted(name)}: no such experiment{hint}")


def claims() -> dict[str, Experiment]:
    """Claim → the experiment that tests it."""
    return {claim: one for one in EXPERIMENTS for claim in one.checks}
