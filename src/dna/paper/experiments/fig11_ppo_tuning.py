"""Figure 11: PPO (2x) with other numbers of epochs and other λ (appendix I)."""

from functools import partial

from dna.paper.claims.arms import WIDE, best, better, monotone, spread_of
from dna.paper.claims.compare import Sampled, combined, sampled_rows
from dna.paper.claims.measures import reached
from dna.paper.claims.verdicts import Finding, every, judged, not_tested, spoken, trained
from dna.paper.experiments import fig05_lambda
from dna.paper.experiments.fig06_main import PPO_WIDE
from dna.paper.experiments.plan import Arm, Experiment, Study
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_3_VAL

#: An arm changes its epochs or its λ; all else is tuned PPO's.
ONE_LAMBDA = {key: value for key, value in PPO_WIDE.items() if key != "joint.sgd.epochs"}
ONE_EPOCH = {key: value for key, value in PPO_WIDE.items() if key != "returns.lambda_pi"}
EPOCHS = tuple(
    Arm(f"E={e}", "tuned.ppo", "ppo", changes={"joint.sgd.epochs": e}, small=ONE_LAMBDA)
    for e in (1, 2, 3, 4)
)
LAMBDAS = tuple(
    Arm(
        f"λ={value:g}",
        "tuned.ppo",
        "ppo",
        changes={"returns.lambda_pi": value, "returns.lambda_v": value},
        small=ONE_EPOCH,
    )
    for value in (0.6, 0.8, 0.9, 0.95, 0.975)
)
_E, _L = [arm.name for arm in EPOCHS], [arm.name for arm in LAMBDAS]


def plateau(results: Results) -> tuple[list[float], list[Sampled]] | None:
    """(E, share of the run after which the mean curve has 95 % of its final score)."""
    seen = []
    for arm in _E:
        grid, curves = results.total_curve("epochs", arm)
        if not len(grid):
            return None
        seen.append(sampled_rows(curves, partial(reached, grid / grid[-1], share=0.95), arm))
    return [1.0, 2.0, 3.0, 4.0], seen


def less_than_dna(results: Results) -> Finding | None:
    """PPO's scores differ less between λ than DNA's do in figure 5."""
    ours = spread_of(results, "lambda (ppo)", _L)
    theirs = spread_of(results, "lambda", [arm.name for arm in fig05_lambda.HIGH])
    if ours is None or theirs is None:
        return None
    gap = combined(lambda ppo, dna: dna - ppo, ours, theirs)
    words = f"PPO {spoken(ours, '.1f')}, DNA {spoken(theirs, '.1f')}"
    return judged(gap, f"spread: {words}; {spoken(gap, unit=' points')} apart", 0.0)


_DNA = Study("lambda", tuple(fig05_lambda.HIGH), ATARI_3_VAL, seeds=3)
EXPERIMENT = Experiment(
    name="fig11",
    alias="ppo-tuning",
    title="PPO with other numbers of epochs and other λ",
    covers=("fig:ppo_hps",),
    studies=(
        Study("epochs", EPOCHS, ATARI_3_VAL, seeds=3),
        Study("lambda (ppo)", LAMBDAS, ATARI_3_VAL, seeds=3),
        _DNA,
    ),
    checks={
        "C102": every(*(better("epochs", "E=1", many, WIDE) for many in ("E=3", "E=4"))),
        "C103": best("epochs", "E=1", _E),
        "C104": best("lambda (ppo)", "λ=0.95", _L),
        "C105": trained(less_than_dna, "lambda (ppo)", "lambda"),
        "C106": not_tested("an epoch is walked whole; parts of one are no setting"),
        "C107": monotone(plateau, -1, "epochs"),
    },
)
