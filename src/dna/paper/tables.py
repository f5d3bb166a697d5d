"""Tables of an experiment as Markdown and CSV, with the paper's numbers beside ours.

A number of the paper that belongs to other games, or to more of them, says so in its heading.
The caption states what a reader must know: a proxy, what the paper had more of, missing runs.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from dna.common.intervals import iqm
from dna.config import Config, Linear
from dna.envs.benchmark_scores import atari_game, paper_table, procgen_game
from dna.paper import toy
from dna.paper.claims import noise
from dna.paper.claims.kinds import mujoco_gaps, task_of
from dna.paper.claims.measures import time_of
from dna.paper.claims.uncertainty import (
    Sampled,
    interval,
    quotient,
    same,
    sampled_rows,
    standard_error,
)
from dna.paper.claims.verdicts import spoken
from dna.paper.plan import SOLVED, ArmStudy, axis, configure, minatar_game
from dna.paper.published import (
    MUJOCO_BETTER,
    NOISE,
    NOISE_RATIO,
    RAINBOW,
    TIMED,
    ablation,
    column,
    games,
    hours,
    own_games,
    published,
)
from dna.paper.results import MUJOCO_VERSION, Results, RunResult

#: Heading → cell.
TableRow = dict[str, str]
PROXY_CAPTION = "proxy: MinAtar, not the paper's games"
OTHER_CAPTION = "other environments than the paper's"
ANNEALED = "schedules are annealed over the shortened length"
#: More columns of games than this are put into a table of their own.
WIDE = 20
#: With fewer scores nothing is trimmed: their interquartile mean is their mean.
FEWEST_SEEDS = 4
#: Text above tables that belong to no study.
HEADS = {
    "lambda_noise": "σ of each game with the 95 % interval of √B_simple. *Resolved*: the "
    "interval is bounded above. The mean is over the games resolved at every λ. Measured "
    f"{noise.METHOD}.",
    "toy": "L_T1 and L_T2 are test errors: the mean of (prediction − noise-free value)² over "
    "an even grid, after training, averaged over seeds; ± s.e. is that mean's standard error.",
}
#: Headings of the toy problem's table.
TOY_HEADINGS = {
    "sigma_1": "σ₁",
    "l_t1": "L_T1",
    "l_t1_se": "± s.e. of L_T1",
    "l_t2": "L_T2",
    "l_t2_se": "± s.e. of L_T2",
}
#: Headings of σ: algorithm 2's, the authors' form (hence the paper's), and paired.
END = "σ at the end"
AUTHORS = "σ at the end (authors' form)"
PAIRED = "σ at the end (paired)"
FORMS = (END, AUTHORS, PAIRED)
SPAN = "95 %"
RATIO = "policy / value"
UNRESOLVED = "indistinguishable from noise"


# --- Which tables -------------------------------------------------------------------------


def tables(results: Results) -> dict[str, list[TableRow]]:
    """Name → rows: a table for each study, and others as the experiment needs them."""
    found = {one.name: _study_table(results, one) for one in results.experiment.studies}
    if "toy" in results.extra:
        found["toy"] = [
            {TOY_HEADINGS.get(key, key): _toy_cell(value) for key, value in row.items()}
            for row in results.extra["toy"]["table"]
        ]
    if noise.STUDY in found:
        found["sigma"] = _sigma_table(results, results.study(noise.STUDY))
    if "lambda_noise" in results.extra:
        found["lambda_noise"] = _lambda_table(results)
    if results.experiment.name == "fig16":
        found["summary"] = _median_table(results)
        for mode in ("hard", "easy"):
            if rows := _games_table(results, mode):
                found[f"{mode}_games"] = rows
    return found


def _study_table(results: Results, study: ArmStudy) -> list[TableRow]:
    if results.experiment.name == "tab05":
        return _times_table(results, study)
    if not study.suite.total:
        return _task_table(results, study)
    return _score_table(results, study)


def _toy_cell(value: Any) -> str:
    if value is None:
        return ""  # the standard error of one seed
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- Cells --------------------------------------------------------------------------------


def _mean_and_error(found: Sequence[float]) -> str:
    """`12.30 ± 0.40`; no error for one seed, nothing without seeds."""
    if not len(found):
        return ""
    mean = float(np.mean(found))
    error = standard_error(found)
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _ends(span: tuple[float, float] | None, form: str = ",.1f") -> str:
    """`1.0 – 2.0`."""
    return f"{span[0]:{form}} – {span[1]:{form}}".replace("inf", "∞") if span else ""


# --- Scores of arms -----------------------------------------------------------------------


def _score_table(results: Results, study: ArmStudy) -> list[TableRow]:
    """A row for each arm: score, interquartile mean and interval, every environment."""
    printed = published(results.experiment, study.name)
    theirs = column(study, results.scale, results.length(study.name))
    unit = axis(study.suite, results.scale)
    rows = []
    for arm in study.arms:
        row = _score_cells(results, study, arm.name) | {"unit": unit}
        if printed.totals or printed.others:
            total = printed.totals.get(arm.name)
            row[theirs] = "" if total is None else f"{total:.4g}"
        if results.experiment.name == "tab04":
            row |= _ablation_cells(results, study, arm.name)
        if len(study.suite.envs[results.scale]) <= WIDE:
            raw = results.scores(study.name, arm.name)
            for env in results.any_envs(study.name):
                row[env] = _mean_and_error(raw.get(env, ()))
        rows.append(row)
    return rows + _published_rows(results, study, theirs)


def _score_cells(results: Results, study: ArmStudy, arm: str) -> TableRow:
    """Score cells of an arm; empty if it lacks a game and so has no benchmark score."""
    digits = study.suite.digits
    raw = results.scores(study.name, arm)
    row = {"arm": arm, "seeds": str(min(map(len, raw.values()), default=0))}
    total = results.total(study.name, arm)
    if total is None:
        return row | {"score": "", "IQM": "", "IQM 95 %": ""}
    row["score"] = f"{total:.{digits}f}"
    # In the unit of the score: returns of a single task are shown unnormalized.
    scores = raw if study.suite.axis == "return" else results.normalized(study.name, arm)
    every = [score for found in scores.values() for score in found]
    if len(every) >= FEWEST_SEEDS:
        row["IQM"] = f"{iqm(every):.{digits}f}"
        row["IQM 95 %"] = _ends(interval(iqm, scores), f".{digits}f")
    return row


def _ablation_cells(results: Results, study: ArmStudy, arm: str) -> TableRow:
    """Loss of an arm against DNA in percent, ours and that of table 4."""
    reference = results.total(study.name, "DNA")
    total = results.total(study.name, arm)
    ours = f"{100 * (total / reference - 1):+.1f}" if reference and total is not None else ""
    return {
        "against DNA, %": ours,
        "paper: against DNA, %": f"{ablation()[arm][1]:+.1f}",
    }


def _published_rows(results: Results, study: ArmStudy, theirs: str) -> list[TableRow]:
    """Rows of algorithms that we do not run, and of tables 9 and 10 for the paper's games."""
    printed = published(results.experiment, study.name)
    rows = {
        name: {"arm": f"paper: {name}", "unit": study.suite.axis, theirs: f"{total:.4g}"}
        for name, total in printed.others.items()
    }
    envs = results.any_envs(study.name)
    if len(envs) <= WIDE and own_games(study, results.scale):
        for env in envs:
            for who, score in (printed.games.get(atari_game(env) or "") or {}).items():
                row = rows.setdefault(who, {"arm": f"paper: {who}", "unit": "raw score"})
                row[env] = f"{score:g}"
    return list(rows.values()) + _procgen_ranges(envs)


def _procgen_ranges(envs: Sequence[str]) -> list[TableRow]:
    """Returns of Procgen's games that count as 0 and as 1."""
    known = {row["game"]: row for row in paper_table("procgen_ranges")}
    rows = []
    for end, key in (("0", "min"), ("1", "max")):
        cells = {e: f"{known[g][key]}" for e in envs if (g := procgen_game(e)) is not None}
        if cells:
            rows.append({"arm": f"counts as {end}", "unit": "return"} | cells)
    return rows


# --- Gradient noise (section 3.2, figure 5) -----------------------------------------------


def _sigma_table(results: Results, study: ArmStudy) -> list[TableRow]:
    """σ of each phase by game and on average, in three forms; the paper's is `AUTHORS`."""
    theirs = column(study, results.scale, results.length(study.name))
    outcomes = results.of(study.name, noise.ARM)
    rows: list[TableRow] = []
    means: dict[str, dict[str, float | None]] = {}
    for phase in noise.PHASES:
        for one in outcomes:
            rows.append({"phase": phase, "game": one.run.env} | _sigma_cells(one, phase))
        found = [_sigmas(one, phase) for one in outcomes]
        means[phase] = {form: _mean_of([sigmas[form] for sigmas in found]) for form in FORMS}
        row = {"phase": phase, "game": "mean"}
        row |= {form: _number(sigma) for form, sigma in means[phase].items()}
        row[theirs] = f"{NOISE[phase]:g}" if phase in NOISE else ""
        rows.append(row)
    rows += [{"phase": RATIO, "game": one.run.env} | _ratio_cells(one) for one in outcomes]
    row = {"phase": RATIO, "game": "mean"}
    for form in FORMS:
        policy, value = means["policy"][form], means["value"][form]
        row[form] = _number(policy / value if policy is not None and value else None)
    row[theirs] = f"{NOISE_RATIO:g}"
    return [*rows, row]


def _sigmas(outcome: RunResult, phase: str) -> dict[str, float | None]:
    """Form → σ at the end of a run."""
    return {
        END: _finite(noise.level(outcome, phase)),
        AUTHORS: noise.authors_level(outcome, phase),
        PAIRED: _finite(noise.level(outcome, phase, form="_paired")),
    }


def _finite(found: Sampled | None) -> float | None:
    return found.value if found and isfinite(found.value) else None


def _sigma_cells(outcome: RunResult, phase: str) -> TableRow:
    last = noise.level(outcome, phase)
    cells = {form: _number(sigma) for form, sigma in _sigmas(outcome, phase).items()}
    return {
        "σ at the start": _number(_finite(noise.level(outcome, phase, start=True))),
        END: cells[END] or UNRESOLVED,
        SPAN: _ends(last.span if last else None, ".1f"),
        AUTHORS: cells[AUTHORS],
        PAIRED: cells[PAIRED],
    }


def _ratio_cells(outcome: RunResult) -> TableRow:
    """σ_π / σ_V of a game; a gradient hidden by noise leaves a lower bound."""
    policy, value = noise.level(outcome, "policy"), noise.level(outcome, "value")
    if policy is None or value is None:
        return {END: UNRESOLVED}
    found = quotient(policy, value)
    return {END: _number(_finite(found)) or UNRESOLVED, SPAN: _ends(found.span, ".1f")}


def _mean_of(found: Sequence[float | None]) -> float | None:
    """The mean; None if any is missing: leaving out |𝒢|² ≤ 0 would leave out the noisiest."""
    known = [sigma for sigma in found if sigma is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None


def _lambda_table(results: Results) -> list[TableRow]:
    """σ_π against λ_π and σ_V against λ_V: by game, and the mean that is judged."""
    rows = []
    for phase in results.extra["lambda_noise"]:
        mean = noise.sigmas_by_lambda(results, phase)
        means = dict(zip(*mean, strict=True)) if mean else {}
        for value, readings in noise.lambda_readings(results, phase).items():
            count = sum(map(noise.is_resolved, readings.values()))
            row = {"phase": phase, "λ": f"{value:g}"}
            row["resolved"] = f"{count} of {len(readings)} games"
            row |= {env: _reading_cell(one) for env, one in readings.items()}
            one = means.get(value)
            row["geometric mean [95 %]"] = spoken(one, ".1f", "") if one else ""
            rows.append(row)
    return rows


def _reading_cell(one: noise.LambdaReading) -> str:
    """`12.3 [10.0, 15.1]`, `12.3 [0.0, ∞]`; `not known` where |𝒢|² ≤ 0 or 𝒮 ≤ 0."""
    sigma = noise.known_sigma(one)
    if sigma is None:
        return "not known"
    high = "∞" if one["high"] is None else f"{one['high'] ** 0.5:.1f}"
    return f"{sigma:.1f} [{one['low'] ** 0.5:.1f}, {high}]"


# --- Training times (table 5) -------------------------------------------------------------


def times(results: Results) -> dict[str, float]:
    """Arm → seconds of training per million interactions."""
    found = {arm: time_of(results, "time", arm) for arm in TIMED}
    return {arm: one.value for arm, one in found.items() if one is not None}


def _times_table(results: Results, study: ArmStudy) -> list[TableRow]:
    """Training times on this machine beside the GPU hours of table 5; compare the ratios."""
    found, printed = times(results), hours()
    length = study.suite.interactions["paper"]
    arms = {theirs: arm for arm, theirs in TIMED.items()}
    rows = []
    for theirs, spent in printed.items():
        arm = arms.get(theirs)
        ours, dna = found.get(arm or ""), found.get("DNA")
        row = {
            "arm": arm or f"paper: {theirs}",
            "seconds per million interactions, here": _number(ours),
            f"hours per {length / 1e6:g} M, here": _number(ours and ours * length / 3.6e9),
            "× DNA, here": _number(ours / dna if ours and dna else None, 2),
            "paper: GPU hours per Atari game": f"{spent:g}",
            "paper: × DNA": f"{spent / printed['DNA']:.2f}",
        }
        rows.append(row)
    return rows


# --- Tasks of MuJoCo, and 57 games (tables 8 to 10) ---------------------------------------


def _task_table(results: Results, study: ArmStudy) -> list[TableRow]:
    """A row for each task: returns of different tasks share no scale, hence no total."""
    gaps = mujoco_gaps(results)
    rows = []
    for env in study.suite.envs[results.scale]:
        row = {"task": env, "unit": "return"}
        for arm in study.arms:
            seen = results.scores(study.name, arm.name).get(env, [])
            row[f"{arm.name} seeds"] = str(len(seen))
            row[arm.name] = _mean_and_error(seen)
            if len(seen) < FEWEST_SEEDS:  # the interquartile mean is the mean
                span = _mean_span(arm.name, env, seen)
                row[f"{arm.name} 95 %"] = _ends(span)
            else:
                row[f"{arm.name} IQM"] = _number(iqm(seen))
                row[f"{arm.name} IQM 95 %"] = _ends(interval(iqm, {env: seen}))
        gap = gaps.get(task_of(env))
        row["DNA against PPO [95 %]"] = spoken(gap) if gap else ""
        row["paper: DNA is"] = "better" if task_of(env) in MUJOCO_BETTER else "similar"
        rows.append(row)
    return rows


def _mean_span(arm: str, env: str, seen: Sequence[float]) -> tuple[float, float] | None:
    return sampled_rows(np.array(seen), same, f"{arm}/{env}").span if seen else None


def _median_table(results: Results) -> list[TableRow]:
    """Table 8: the median over 57 games, easy and hard."""
    rows: dict[str, TableRow] = {}
    for mode in ("easy", "hard"):
        study = results.study(mode)
        printed = published(results.experiment, mode)
        theirs = column(study, results.scale, study.suite.interactions["paper"])
        for arm in study.arms:
            row = rows.setdefault(arm.name, {"algorithm": arm.name})
            row[mode] = _number(results.total(mode, arm.name))
            row[f"{mode}, {theirs}"] = f"{printed.totals[arm.name]:g}"
        for other, total in printed.others.items():
            row = rows.setdefault(other, {"algorithm": f"paper: {other}"})
            row[f"{mode}, {theirs}"] = f"{total:g}"
    return list(rows.values())


def _games_table(results: Results, mode: str) -> list[TableRow]:
    """Tables 9 and 10: every game of the paper, with ours where it is finished."""
    study = results.study(mode)
    if not own_games(study, results.scale):
        return []
    ours = {}
    for arm in study.arms:
        found = results.scores(mode, arm.name)
        ours[arm.name] = {atari_game(env): scores for env, scores in found.items()}
    rows = []
    for game, printed in games(mode).items():
        row = {
            "game": game,
            "random": f"{printed['random']:g}",
            "human": f"{printed['human']:g}",
        }
        if mode == "easy":
            row["Rainbow DQN, paper"] = f"{printed[RAINBOW]:g}"
        for name, scores in ours.items():
            row[name] = _mean_and_error(scores.get(game, ()))
            row[f"{name}, paper"] = f"{printed[name]:g}"
        rows.append(row)
    return rows


# --- Captions -----------------------------------------------------------------------------


def caption(results: Results, study: str | None = None) -> str:
    """One line about a study or the whole experiment; empty if it is complete at full size."""
    names = [one.name for one in results.experiment.studies]
    chosen = [study] if study in names else names
    parts = ["smoke scale: shows that the wiring works"] if results.scale == "smoke" else []
    short = _shortened(results, chosen)
    for name in chosen:
        envs = results.planned_envs(name)
        played = own_games(results.study(name), results.scale)
        if played:
            parts.append(short[name])
        else:
            parts.append(PROXY_CAPTION if any(map(minatar_game, envs)) else OTHER_CAPTION)
        if set(envs) & set(SOLVED):
            parts.append(MUJOCO_VERSION)
        if played and _annealed(results, name):
            parts.append(ANNEALED)
        if results.scale == "small" and PROXY_CAPTION in parts:
            parts += [arm.proxy_note for arm in results.study(name).arms]
    if PROXY_CAPTION in parts:
        parts.append(results.limits.words)
    if "toy" in results.experiment.extra:
        parts.append(_toy_caption(results))
    parts.append(results.unfinished(study if study in names else None))
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _shortened(results: Results, names: list[str]) -> dict[str, str]:
    """Study → what the paper had more of, with the study's name where studies differ."""
    found = {name: results.shortened_in(name) for name in names}
    apart = len({words for words in found.values() if words}) > 1
    return {
        name: f"{name} {words}" if apart and words else words for name, words in found.items()
    }


def _annealed(results: Results, name: str) -> bool:
    """Return whether runs are shorter than the paper's and anneal something."""
    study = results.study(name)
    length = results.length(name)
    env = study.suite.envs[results.scale][0]
    return length < study.suite.interactions["paper"] and any(
        _has_schedule(configure(arm, env, results.scale, length)) for arm in study.arms
    )


def _has_schedule(config: Config) -> bool:
    settings = [one for phase in config.phases for _, one in (*phase, *phase.sgd)]
    return any(isinstance(one, Linear) for one in settings)


def _toy_caption(results: Results) -> str:
    ours, theirs = toy.settings_of(results.scale, results.limits.seeds), toy.SCALES["paper"]
    sizes = (
        (ours.seeds, theirs.seeds, "seeds"),
        (len(ours.sigmas), len(theirs.sigmas), "values of σ₁"),
        (ours.width, theirs.width, "units of width"),
    )
    parts = [f"{few} of {many} {what}" for few, many, what in sizes if few < many]
    return f"shortened: {', '.join(parts)}" if parts else ""


# --- Text ---------------------------------------------------------------------------------


def head(results: Results, name: str) -> str:
    """Text above a table: its units and the caption of the runs."""
    studies = {study.name: study for study in results.experiment.studies}
    lines = []
    if name in studies and results.experiment.name != "tab05":
        suite = studies[name].suite
        what = axis(suite, results.scale) if suite.total else "return"
        lines.append(f"Score: {what}. {_units(results, studies[name])}")
        origin = published(results.experiment, name).origin
        lines += [f"The paper's numbers: {origin}."] if origin else []
    lines += [HEADS[name]] if name in HEADS else []
    said = caption(results, name if name in studies else None)
    lines += [f"**{said[0].upper()}{said[1:]}.**"] if said else []
    return "".join(f"{line}\n\n" for line in lines)


def _units(results: Results, study: ArmStudy) -> str:
    """Units of interquartile means and of the columns of games."""
    if not study.suite.total:
        return (
            "Tasks: mean ± standard error over seeds; they share no scale, hence no total. "
            "DNA against PPO: percent of PPO's return, both measured from uniform actions'."
        )
    if study.suite.axis == "return":
        seeds = [len(results.of(study.name, arm.name)) for arm in study.arms]
        middle = "IQM: of the same returns. " if max(seeds) >= FEWEST_SEEDS else ""
        return f"{middle}Tasks: mean ± standard error over seeds."
    atari = atari_game(study.suite.envs[results.scale][0])
    whose = "human-normalized scores, %" if atari else "the same scores by game"
    return f"IQM: of {whose}. Games: raw score, mean ± standard error over seeds."


def columns_of(rows: Sequence[TableRow]) -> list[str]:
    """Every heading of any row, in order."""
    return list(dict.fromkeys(key for row in rows for key in row))


def markdown(rows: Sequence[TableRow], without: Sequence[str] = ()) -> str:
    """Format as a pipe table; columns that are empty throughout are left out."""
    columns = [c for c in columns_of(rows) if any(row.get(c) for row in rows)]
    columns = [c for c in columns if c not in without]
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(row.get(c, "") for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[TableRow]) -> str:
    """Format as CSV, with the unit of scores as a column."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
