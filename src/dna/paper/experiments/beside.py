"""Tables that are not one row per arm: noise (section 3.2), times (table 5), MuJoCo's tasks,
λ and noise (figure 5), and the 57 games (tables 8 to 10), each beside the paper's numbers.
"""

import statistics
from collections.abc import Sequence
from math import isfinite

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.paper.claims.compare import Sampled, interval, iqm, quotient, same, sampled_rows
from dna.paper.claims.measures import time_of
from dna.paper.claims.verdicts import spoken
from dna.paper.experiments import finished, lambda_levels
from dna.paper.experiments.fig02_noise_scale import PHASES
from dna.paper.experiments.fig13_mujoco import task_of
from dna.paper.experiments.fig13_mujoco import tasks as mujoco_gaps
from dna.paper.experiments.noise_levels import ARM, STUDY, authors_level, level
from dna.paper.experiments.plan import Study
from dna.paper.experiments.published import (
    MUJOCO_BETTER,
    NOISE,
    NOISE_RATIO,
    RAINBOW,
    column,
    games,
    hours,
    own_games,
    published,
)
from dna.paper.experiments.results import Outcome, Results
from dna.paper.experiments.rows import Row, length_of, mean_and_error, number
from dna.paper.experiments.tab05_training_time import ROWS

#: Headings of σ: algorithm 2; as the authors' code has it, and so the paper's numbers; paired.
END, AUTHORS, PAIRED = "σ at the end", "σ at the end (authors' form)", "σ at the end (paired)"
FORMS = (END, AUTHORS, PAIRED)
SPAN, RATIO, TOLD = "95 %", "policy / value", "not told from noise"
#: Below so many, nothing is cut off of them: their interquartile mean is their mean.
FEWEST_SEEDS = 4


def tables(results: Results) -> dict[str, list[Row]]:
    """What stands beside the tables of the studies."""
    found: dict[str, list[Row]] = {}
    names = [study.name for study in results.experiment.studies]
    if STUDY in names:
        found["sigma"] = sigmas(results, results.study(STUDY))
    if "lambda_noise" in results.extra:
        found["lambda_noise"] = lambdas(results)
    if results.experiment.name == "fig16":
        found["summary"] = medians(results)
        for mode in ("hard", "easy"):
            if rows := full(results, mode):
                found[f"{mode}_games"] = rows
    return found


def sigmas(results: Results, study: Study) -> list[Row]:
    """σ of each phase, game by game and on average, in three forms; the paper's is AUTHORS."""
    theirs = column(study, results.scale, length_of(results, study))
    rows, ends, outcomes = [], {}, results.of(study.name, ARM)
    for phase in PHASES:
        for one in outcomes:
            rows.append({"phase": phase, "game": one.run.env} | _sigma_cells(one, phase))
        found = [_ends(one, phase) for one in outcomes]
        ends[phase] = {form: _mean_of([end[form] for end in found]) for form in FORMS}
        means = {form: number(sigma) for form, sigma in ends[phase].items()}
        printed = f"{NOISE[phase]:g}" if phase in NOISE else ""
        rows.append({"phase": phase, "game": "mean"} | means | {theirs: printed})
    rows += [{"phase": RATIO, "game": one.run.env} | _ratio_cells(one) for one in outcomes]
    row = {"phase": RATIO, "game": "mean"}
    for form in FORMS:
        policy, value = ends["policy"][form], ends["value"][form]
        row[form] = number(policy / value if policy is not None and value else None)
    return [*rows, row | {theirs: f"{NOISE_RATIO:g}"}]


def _ends(outcome: Outcome, phase: str) -> dict[str, float | None]:
    """Form → σ at the end of a run."""
    ours, paired = level(outcome, phase), level(outcome, phase, form="_paired")
    return {
        END: ours.value if ours and isfinite(ours.value) else None,
        AUTHORS: authors_level(outcome, phase),
        PAIRED: paired.value if paired and isfinite(paired.value) else None,
    }


def _ratio_cells(outcome: Outcome) -> Row:
    """σ_π / σ_V of a game; a gradient that drowns leaves a lower bound."""
    policy, value = level(outcome, "policy"), level(outcome, "value")
    if policy is None or value is None:
        return {END: TOLD}
    found = quotient(policy, value)
    return {END: number(found.value) if isfinite(found.value) else TOLD, SPAN: _span(found)}


def _span(found: Sampled | None) -> str:
    ends = found.span if found else None
    return f"{ends[0]:.1f} – {ends[1]:.1f}".replace("inf", "∞") if ends else ""


def _sigma_cells(outcome: Outcome, phase: str) -> Row:
    first, last = level(outcome, phase, start=True), level(outcome, phase)
    cells = {form: number(sigma) for form, sigma in _ends(outcome, phase).items()}
    return {
        "σ at the start": number(first.value if first and isfinite(first.value) else None),
        END: cells[END] or TOLD,
        SPAN: _span(last),
        AUTHORS: cells[AUTHORS],
        PAIRED: cells[PAIRED],
    }


def _mean_of(found: Sequence[float | None]) -> float | None:
    """A mean without the games in which |𝒢|² ≤ 0 would leave out the noisiest."""
    known = [sigma for sigma in found if sigma is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None


def lambdas(results: Results) -> list[Row]:
    """σ_π against λ_π and σ_V against λ_V: game by game, and the mean that is judged."""
    rows = []
    for phase in results.extra["lambda_noise"]:
        mean = lambda_levels.sigmas(results, phase)
        means = dict(zip(*mean, strict=True)) if mean else {}
        for value, readings in lambda_levels.measured(results, phase).items():
            told = sum(map(lambda_levels.is_told, readings.values()))
            row = {"phase": phase, "λ": f"{value:g}"}
            row["told"] = f"{told} of {len(readings)} games"
            row |= {env: _reading(one) for env, one in readings.items()}
            one = means.get(value)
            row["geometric mean [95 %]"] = spoken(one, ".1f", "") if one else ""
            rows.append(row)
    return rows


def _reading(one: lambda_levels.Reading) -> str:
    """`12.3 [10.0, 15.1]`, `12.3 [0.0, ∞]`; `not known` where |𝒢|² ≤ 0 or 𝒮 ≤ 0."""
    sigma = lambda_levels.known(one)
    if sigma is None:
        return "not known"
    high = "∞" if one["high"] is None else f"{one['high'] ** 0.5:.1f}"
    return f"{sigma:.1f} [{one['low'] ** 0.5:.1f}, {high}]"


def times(results: Results) -> dict[str, float]:
    """Arm → seconds of training per million interactions."""
    found = {arm: time_of(results, "time", arm) for arm in ROWS}
    return {arm: one.value for arm, one in found.items() if one is not None}


def times_table(results: Results, study: Study) -> list[Row]:
    """Time of training: ours on this machine, and GPU hours of table 5; ratios compare."""
    found, printed, rows = times(results), hours(), []
    length = study.world.interactions["paper"]
    names = {theirs: arm for arm, theirs in ROWS.items()}
    for theirs, spent in printed.items():
        arm = names.get(theirs)
        ours, dna = found.get(arm or ""), found.get("DNA")
        row = {
            "arm": arm or f"paper: {theirs}",
            "seconds per million interactions, here": number(ours),
            f"hours per {length / 1e6:g} M, here": number(ours and ours * length / 3.6e9),
            "× DNA, here": number(ours / dna if ours and dna else None, 2),
            "paper: GPU hours per Atari game": f"{spent:g}",
            "paper: × DNA": f"{spent / printed['DNA']:.2f}",
        }
        rows.append(row)
    return rows


def tasks(results: Results, study: Study) -> list[Row]:
    """A row for each task: returns of different tasks have no common scale, hence no total."""
    rows, gaps = [], mujoco_gaps(results)
    for env in study.world.envs[results.scale]:
        row = {"task": env, "unit": "return"}
        for arm in study.arms:
            seen = finished.table(results, study.name, arm.name).get(env, [])
            row |= {f"{arm.name} seeds": str(len(seen)), arm.name: mean_and_error(seen)}
            row |= _middle(arm.name, env, seen)
        gap = gaps.get(task_of(env))
        row["DNA against PPO [95 %]"] = spoken(gap) if gap else ""
        row["paper: DNA is"] = "better" if task_of(env) in MUJOCO_BETTER else "similar"
        rows.append(row)
    return rows


def _middle(arm: str, env: str, seen: Sequence[float]) -> Row:
    """The interquartile mean; of fewer than four seeds that is the mean: its interval."""
    if len(seen) < FEWEST_SEEDS:
        span = sampled_rows(np.array(seen), same, f"{arm}/{env}").span if seen else None
        return {f"{arm} 95 %": _ends_of(span)}
    cells = {f"{arm} IQM": number(iqm(np.array(seen)))}
    return cells | {f"{arm} IQM 95 %": _ends_of(interval(iqm, {env: seen}))}


def _ends_of(span: tuple[float, float] | None) -> str:
    return f"{span[0]:,.1f} – {span[1]:,.1f}" if span else ""


def medians(results: Results) -> list[Row]:
    """Table 8: the median over 57 games, easy and hard."""
    rows: dict[str, Row] = {}
    for mode in ("easy", "hard"):
        study, printed = results.study(mode), published(results.experiment, mode)
        view, theirs = finished.complete(results, mode), column(study, results.scale, 10**12)
        for arm in study.arms:
            row = rows.setdefault(arm.name, {"algorithm": arm.name})
            done = arm.name in finished.arms(results, mode)
            row[mode] = number(view.total(mode, arm.name) if done else None)
            row[f"{mode}, {theirs}"] = f"{printed.totals[arm.name]:g}"
        for other, total in printed.others.items():
            row = rows.setdefault(other, {"algorithm": f"paper: {other}"})
            row[f"{mode}, {theirs}"] = f"{total:g}"
    return list(rows.values())


def full(results: Results, mode: str) -> list[Row]:
    """Tables 9 and 10: every game of the paper, ours where it is finished."""
    study, printed = results.study(mode), games(mode)
    if not own_games(study, results.scale):
        return []
    ours = {
        arm.name: {
            atari_game(env): found
            for env, found in finished.table(results, mode, arm.name).items()
        }
        for arm in study.arms
    }
    rows = []
    for game, who in printed.items():
        row = {"game": game, "random": f"{who['random']:g}", "human": f"{who['human']:g}"}
        if mode == "easy":
            row["Rainbow DQN, paper"] = f"{who[RAINBOW]:g}"
        for arm, found in ours.items():
            row |= {arm: mean_and_error(found.get(game, ())), f"{arm}, paper": f"{who[arm]:g}"}
        rows.append(row)
    return rows
