"""Tables 1 to 3: settings; and the claims that are mathematics or construction.

There is nothing to train: presets are compared with the tables, identities are computed.
"""

from dna.paper.claims import construction, proofs
from dna.paper.claims.verdicts import identity, not_tested, simulated
from dna.paper.experiments.plan import Experiment

#: C019 and C076 compare two sizes of the policy's mini-batch; a search needs all of them.
SEARCH = "needs the coarse search over mini-batch sizes, which no experiment repeats"
EXPERIMENT = Experiment(
    name="tab01",
    alias="settings",
    title="Settings tables, identities and construction",
    covers=("tab:main_hps", "tab:ppg_hps", "tab:env_settings"),
    checks={
        "C004": simulated(proofs.n_step_variance_and_bias),
        "C005": identity(construction.stored_states),
        "C020": identity(construction.networks_are_apart),
        "C021": identity(proofs.gae_is_td_lambda),
        "C022": identity(proofs.targets_from_advantages),
        "C024": identity(construction.student_can_be_teacher),
        "C026": identity(construction.distillation_moves_the_policy_only),
        "C027": identity(proofs.pooled_targets_give_their_mean),
        "C029": identity(construction.phases_read_the_rollout),
        "C030": identity(proofs.subset_predicts_median),
        "C031": not_tested(SEARCH),
        "C032": not_tested(SEARCH),
        "C033": identity(construction.frames_and_interactions),
        "C034": identity(construction.parameter_counts),
        "C060": identity(construction.entropy_is_not_clipped),
        "C062": not_tested("an explanation of earlier work; L^VF has no clip in this package"),
        "C064": simulated(proofs.returns_have_unit_variance),
        "C065": simulated(proofs.clipping_is_rare),
        "C066": not_tested(
            "no experiment trains with and without the penalty for repeated actions"
        ),
        "C067": identity(proofs.repetitions_end),
        "C068": simulated(construction.warm_up_pulls_apart),
        "C069": not_tested("no experiment trains with and without the warm-up"),
        "C070": identity(construction.actions_cannot_be_seen),
        "C071": not_tested("no experiment compares 256 with 512 for value and distillation"),
        "C072": identity(construction.table_1_is_the_preset),
        "C073": identity(construction.table_3_is_the_preset),
        "C083": identity(proofs.gae_is_td_lambda),
    },
)
