"""Every claim of the paper with its kind and parameters, by the experiment that tests it.

The wording of the claims is in `dna/paper/data/claims.csv`. Arms and studies are named as in
`dna.paper.experiments`.
"""

from dna.config.presets import preset
from dna.paper import toy
from dna.paper.claims import noise, proofs
from dna.paper.claims.kinds import (
    ALL_57,
    MARGIN,
    WIDE,
    best,
    best_updates,
    better,
    by_arm,
    early_and_late,
    every,
    gain,
    games_above_rainbow,
    hours_here,
    identity,
    levels_off,
    median_near,
    monotone,
    mujoco_better,
    mujoco_similar,
    narrower_spread,
    not_tested,
    noted,
    papers_time_ratio,
    passes_rainbow,
    passes_rainbow_57,
    plateau_of,
    proxy_noted,
    score_below,
    score_near,
    scores_as_printed,
    similar,
    simulated,
    smallest_loss,
    spread,
    still_rising,
    time_ratio,
    total_above_rainbow,
    trained,
    wide_margin_57,
    widest_spread,
)
from dna.paper.claims.measures import divergence_of, time_of
from dna.paper.claims.verdicts import Verdict
from dna.paper.plan import Check
from dna.paper.published import NOISE_RATIO, PROCGEN, PROCGEN_PPG, RAINBOW, ablation
from dna.paper.results import Results

#: C019 and C076 compare two sizes of the policy's mini-batch; a search would need all of them.
NO_SEARCH = "needs the coarse search over mini-batch sizes, which no experiment repeats"
NO_EASY = "the proxy has no easy settings"
PAPERS_GAMES = "needs the paper's networks and games"
PUBLISHED_CURVES = "a statement on published curves, which are not part of this package"
ALL_PROCGEN = "needs all 16 games at their full length"

#: Arms of the epoch sweeps (figure 4), DNA's λ sweep (figure 5) and PPO's sweeps (figure 11).
E_PI = {f"E_π={epochs}": float(epochs) for epochs in (1, 2, 3, 4)}
E_V = [f"E_V={epochs}" for epochs in (1, 2, 3, 4)]
E_D = [f"E_D={epochs}" for epochs in (0, 1, 2, 3, 4)]
LAMBDA_PI = [f"λ_π={value:g} λ_V=0.95" for value in (0.6, 0.8, 0.9, 0.95, 0.975)]
MIXED = "λ_π=0.8 λ_V=0.95"
BOTH_LOW = "λ_π=0.8 λ_V=0.8"
BOTH_HIGH = "λ_π=0.95 λ_V=0.95"
PPO_E = {f"E={epochs}": float(epochs) for epochs in (1, 2, 3, 4)}
PPO_LAMBDA = [f"λ={value:g}" for value in (0.6, 0.8, 0.9, 0.95, 0.975)]
#: Arms of figure 10 other than the reference.
ALTERNATIVES = ("PPO (E=2)", "PPO (λ_V=0.95, λ_π=0.8)", "PPO (1x)", "PPO (orig)")
MB_512 = "DNA (mb=512)"


def _levels(results: Results) -> Verdict:
    """C124: our preset follows the authors' code, which says nothing about the paper."""
    settings = preset("procgen.dna").env.procgen
    assert settings is not None
    effect = f"num_levels = {settings.num_levels} (0: unlimited)"
    return Verdict("not tested", effect, "the setting of the authors' code, which is ours")


#: Experiment → claim → its test.
CLAIMS: dict[str, dict[str, Check]] = {
    # Figure 1: the toy problem (section 3.1).
    "fig01": toy.CHECKS,
    # Figures 2 and 8: gradient noise (section 3.2, appendix D); σ against λ (section 6.2).
    "fig02": {
        "C003": noise.sigma_ratio(10.0),
        "C011": identity(proofs.noise_estimators),
        "C012": noise.sigma_near("policy"),
        "C013": noise.sigma_near("value"),
        "C014": noise.sigma_ratio(NOISE_RATIO / 2, NOISE_RATIO * 2),
        "C015": noise.sigma_change("policy", 0.3, 0.75),
        "C016": noise.sigma_change("value", 0.75, 1.33),
        "C017": noise.on_noise(noise.games_are_alike, "less than 0.5", at_end=True),
        "C018": noise.on_noise(noise.gap_on_every_game, "at least 5"),
        "C025": noise.on_noise(noise.distil_is_lowest),
        "C053": noise.moves_with_lambda("policy", 1),
        "C054": noise.moves_with_lambda("value", -1),
        "C080": noise.on_noise(noise.distil_is_lowest),
        "C081": noise.on_noise(noise.distil_varies_most),
        "C082": not_tested(
            "a suggestion; no experiment varies distillation's mini-batch alone"
        ),
        "C138": identity(proofs.smoothing_reduces),
    },
    # Figure 4: numbers of epochs (section 6.1).
    "fig04": {
        "C035": every(
            better("policy", "E_π=1", "E_π=3", WIDE),
            better("policy", "E_π=1", "E_π=4", WIDE),
            better("policy", "E_π=2", "E_π=3", WIDE),
            better("policy", "E_π=2", "E_π=4", WIDE),
        ),
        "C036": best("policy", "E_π=2", list(E_PI)),
        "C037": every(better("policy", "E_π=2", "E_π=3"), better("policy", "E_π=2", "E_π=4")),
        "C038": spread("value", E_V, high=MARGIN),
        "C039": every(better("value", "E_V=1", "E_V=4"), spread("value", E_V, high=MARGIN)),
        "C040": best("value", "E_V=1", E_V),
        "C041": spread("distil", E_D[1:], high=MARGIN),
        "C042": every(*(better("distil", arm, "E_D=0") for arm in E_D[1:])),
        "C043": best("distil", "E_D=2", E_D),
        "C044": widest_spread(
            {"policy": list(E_PI), "value": E_V, "distil": E_D[1:]}, "policy"
        ),
        "C045": noted(
            every(
                monotone(by_arm(time_of, "policy", E_PI), 1, "policy"),
                time_ratio(
                    "policy", "E_π=1", "E_π=4", "E_π=1 takes {} the time of E_π=4", high=1
                ),
            ),
            "wall-clock time",
        ),
        "C046": still_rising("policy", "E_π=2", "the claim is on 200 million frames"),
        "C047": identity(proofs.epochs_per_network),
        "C058": every(better("policy", "E_π=2", "E_π=4"), better("value", "E_V=1", "E_V=4")),
        "C059": noted(
            monotone(by_arm(divergence_of, "policy", E_PI), 1, "policy"),
            "mean over the mini-batches of the phase, not after it",
        ),
        "C063": best_updates({"policy": list(E_PI), "value": E_V, "distil": E_D}),
    },
    # Figure 5: λ_π and λ_V (section 6.2).
    "fig05": {
        "C023": every(better("lambda", MIXED, BOTH_HIGH), better("lambda", MIXED, BOTH_LOW)),
        "C048": spread("lambda", LAMBDA_PI, low=25.0),
        "C049": best("lambda", MIXED, LAMBDA_PI),
        "C050": better("lambda", MIXED, BOTH_LOW),
        "C051": better("lambda", MIXED, BOTH_LOW),
        "C052": better("lambda", MIXED, BOTH_HIGH),
        "C061": trained(noise.beyond_095, noise.STUDY),
    },
    # Figure 6: DNA, PPO and PPG on Atari-5 (section 6.3).
    "fig06": {
        "C001": better("main", "DNA", "PPO (2x)"),
        "C002": games_above_rainbow("main", 4),
        "C055": better("main", "DNA", "PPO (2x)", WIDE),
        "C056": better("main", "DNA", "PPG", WIDE),
        "C057": total_above_rainbow("main", "DNA"),
    },
    # Figure 9: easy settings (appendix F).
    "fig09": {
        "C084": noted(
            every(*(gain(arm, "easy", "hard", 100.0, NO_EASY) for arm in ("DNA", "PPO (2x)"))),
            "modest: up to twice the score",
        ),
        "C085": games_above_rainbow("easy", 5),
        "C086": passes_rainbow("easy", 30.0, 70.0, "from 30 to 70 M", NO_EASY),
        "C087": total_above_rainbow("easy", "PPO (2x)"),
        "C088": not_tested("no run clips rewards without normalizing them: no setting for it"),
    },
    # Figure 10: alternative settings of PPO, tuned PPG (appendix G).
    "fig10": {
        "C089": every(*(better("alternatives", "PPO (2x)", arm) for arm in ALTERNATIVES)),
        "C090": early_and_late("alternatives", "PPO (E=2)", "PPO (2x)"),
        "C091": better("alternatives", "PPO (2x)", "PPO (λ_V=0.95, λ_π=0.8)"),
        "C092": better("alternatives", "PPO (2x)", "PPO (1x)"),
        "C093": noted(
            early_and_late("alternatives", "PPO (orig)", "PPO (2x)", early=-MARGIN, late=WIDE),
            f"well: at most {MARGIN:.0f} % behind; far: more than {WIDE:.0f} %",
        ),
        "C094": similar("ppg", "PPG (tuned)", "PPG"),
        "C108": levels_off(
            "alternatives",
            "PPO (orig)",
            10.0,
            30.0,
            "from 10 to 30 M; our runs, not those of earlier work",
            "the proxy has no frames of Atari",
        ),
        "C109": every(
            better("alternatives", "PPO (2x)", "PPO (orig)"),
            time_ratio(
                "alternatives", "PPO (2x)", "PPO (orig)", "{} the time of PPO (orig)", high=1.0
            ),
        ),
    },
    # Figure 11: tuning PPO (appendix I).
    "fig11": {
        "C102": every(
            better("epochs", "E=1", "E=3", WIDE), better("epochs", "E=1", "E=4", WIDE)
        ),
        "C103": best("epochs", "E=1", list(PPO_E)),
        "C104": best("lambda (ppo)", "λ=0.95", PPO_LAMBDA),
        "C105": narrower_spread("lambda (ppo)", PPO_LAMBDA, "lambda", LAMBDA_PI),
        "C106": not_tested("epochs are always complete; a fraction of one is not a setting"),
        "C107": monotone(by_arm(plateau_of, "epochs", PPO_E), -1, "epochs"),
    },
    # Figure 12: distillation targets (appendix J).
    "fig12": {
        "C028": best("targets", "value", ["none", "value", "projection", "features"]),
        "C110": every(
            better("targets", "value", "none"), better("targets", "projection", "none")
        ),
        "C111": better("targets", "none", "features"),
    },
    # Figure 13 and table 6: MuJoCo (appendix K).
    "fig13": {
        "C112": trained(mujoco_better, "mujoco"),
        "C113": trained(mujoco_similar, "mujoco", note=f"margin ±{MARGIN:.0f} %"),
        "C114": better("lambda", "DNA", "DNA (λ_π=0.8)"),
    },
    # Figures 14 and 15 and table 7: Procgen (appendix L).
    "fig14": {
        "C115": score_near("procgen", "DNA", PROCGEN["DNA"], 0.1, ALL_PROCGEN, ".2f"),
        "C116": score_near("procgen", "PPO", PROCGEN["PPO"], 0.1, ALL_PROCGEN, ".2f"),
        "C117": not_tested(PUBLISHED_CURVES),
        "C118": not_tested(PUBLISHED_CURVES),
        "C119": score_below("procgen", "PPO", 0.58, "the published PPO", ALL_PROCGEN),
        "C120": not_tested("a conjecture; no run scales plunder's images by fixed numbers"),
        "C121": not_tested("no experiment varies the epochs on bigfish"),
        "C122": identity(proofs.passes_per_observation),
        "C123": time_ratio(
            "procgen",
            "DNA",
            "PPO",
            "{} PPO's time",
            0.5,
            2.0,
            note="from half to twice; on this machine",
        ),
        "C124": _levels,
        "C125": not_tested(PUBLISHED_CURVES),
        "C126": score_below("procgen", "DNA", PROCGEN_PPG, "the published PPG", ALL_PROCGEN),
    },
    # Figures 16 to 18 and tables 8 to 10: 57 games (appendix M).
    "fig16": {
        "C127": median_near("easy", "DNA"),
        "C128": median_near("hard", "DNA"),
        "C129": median_near("easy", "PPO (2x)"),
        "C130": median_near("hard", "PPO (2x)"),
        "C131": identity(proofs.rainbows_median),
        "C132": trained(
            wide_margin_57, "easy", "hard", note=f"more than {WIDE:.0f} %", paper_only=ALL_57
        ),
        "C133": trained(passes_rainbow_57, "easy", note="from 65 to 105 M", paper_only=ALL_57),
        "C134": median_near("easy", "PPO (2x)", RAINBOW),
        "C135": identity(proofs.ppo_against_rainbow),
        "C136": scores_as_printed("hard"),
        "C137": scores_as_printed("easy"),
    },
    # Tables 1 to 3: settings; and the claims that are mathematics or construction.
    "tab01": {
        "C004": simulated(proofs.n_step_variance_and_bias),
        "C005": identity(proofs.stored_states),
        "C020": identity(proofs.networks_are_apart),
        "C021": identity(proofs.gae_is_td_lambda),
        "C022": identity(proofs.targets_from_advantages),
        "C024": identity(proofs.student_can_be_teacher),
        "C026": identity(proofs.distillation_moves_the_policy_only),
        "C027": identity(proofs.pooled_targets_give_their_mean),
        "C029": identity(proofs.phases_read_the_rollout),
        "C030": identity(proofs.subset_predicts_median),
        "C031": not_tested(NO_SEARCH),
        "C032": not_tested(NO_SEARCH),
        "C033": identity(proofs.frames_and_interactions),
        "C034": identity(proofs.parameter_counts),
        "C060": identity(proofs.entropy_is_not_clipped),
        "C062": not_tested("an explanation of earlier work; L^VF has no clip in this package"),
        "C064": simulated(proofs.returns_have_unit_variance),
        "C065": simulated(proofs.clipping_is_rare),
        "C066": not_tested(
            "no experiment trains with and without the penalty for repeated actions"
        ),
        "C067": identity(proofs.repetitions_end),
        "C068": simulated(proofs.warm_up_pulls_apart),
        "C069": not_tested("no experiment trains with and without the warm-up"),
        "C070": identity(proofs.actions_cannot_be_seen),
        "C071": not_tested("no experiment compares 256 with 512 for value and distillation"),
        "C072": identity(proofs.table_1_is_the_preset),
        "C073": identity(proofs.table_3_is_the_preset),
        "C083": identity(proofs.gae_is_td_lambda),
    },
    # Figure 7 and table 4: ablation (appendix C).
    "tab04": {
        "C019": proxy_noted(better("ablation", "DNA", MB_512), "ablation", MB_512),
        "C074": score_near(
            "ablation",
            "DNA",
            ablation()["DNA"][0],
            0.1 * ablation()["DNA"][0],
            "the proxy has no Atari-5 score",
        ),
        "C075": better("ablation", "DNA", "DNA (no distil)"),
        "C076": proxy_noted(better("ablation", "DNA", MB_512), "ablation", MB_512),
        "C077": better("ablation", "DNA", "DNA (λ=0.95)"),
        "C078": better("ablation", "DNA", "PPO (basic)", WIDE),
        "C079": proxy_noted(
            every(
                smallest_loss("ablation", "DNA (no distil)", ("DNA (λ=0.95)", MB_512), "DNA"),
                better("ablation", "DNA", "DNA (no distil)"),
            ),
            "ablation",
            MB_512,
        ),
    },
    # Table 5: training times (appendix H).
    "tab05": {
        "C095": trained(hours_here, "time"),
        "C096": papers_time_ratio("PPO (2x)", PAPERS_GAMES),
        "C097": papers_time_ratio("PPG", PAPERS_GAMES),
        "C098": papers_time_ratio("PPO (orig)", PAPERS_GAMES),
        "C099": not_tested(
            "a literature value of other hardware; Rainbow DQN is not part of this package"
        ),
        "C100": time_ratio(
            "time",
            "DNA",
            "PPO (orig)",
            "{} the time of PPO (orig); the paper's 0.53",
            high=1.0,
            note="on this machine",
            paper_only=PAPERS_GAMES,
        ),
        "C101": not_tested("needs that machine: 24 cores and four GPUs of one kind"),
    },
}
