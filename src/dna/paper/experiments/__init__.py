"""Every figure and table of the paper as an experiment: a file for each group that shares runs.

`dna reproduce NAME` runs one, `dna list experiments` lists them. Names are the paper's numbers,
aliases are plain words.
"""

from dna.common.errors import BadInput
from dna.common.messages import nearest, quoted
from dna.paper.experiments import (
    fig01_interference,
    fig02_noise_scale,
    fig04_epochs,
    fig05_lambda,
    fig06_main,
    fig09_easy,
    fig10_alternatives,
    fig11_ppo_tuning,
    fig12_distil_targets,
    fig13_mujoco,
    fig14_procgen,
    fig16_atari57,
    tab01_settings,
    tab04_ablation,
    tab05_training_time,
)
from dna.paper.experiments.plan import Experiment

EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        fig01_interference,
        fig02_noise_scale,
        fig04_epochs,
        fig05_lambda,
        fig06_main,
        fig09_easy,
        fig10_alternatives,
        fig11_ppo_tuning,
        fig12_distil_targets,
        fig13_mujoco,
        fig14_procgen,
        fig16_atari57,
        tab01_settings,
        tab04_ablation,
        tab05_training_time,
    )
)
#: Figures and tables that share another's runs, as users may ask for them.
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
#: What the paper has and nobody can run.
DRAWN = {"fig03": "figure 3 of the paper is a drawing of the architecture: nothing to run"}


def experiment(name: str) -> Experiment:
    """By number or alias, or one line that names the nearest."""
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
