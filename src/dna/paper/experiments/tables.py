"""Tables of an experiment, as Markdown and CSV: ours, and beside them what the paper prints.

A number of the paper that belongs to other games, or to more of them, says so in its heading.
"""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from dna.envs.benchmark_scores import atari_game, paper_table, procgen_game
from dna.paper.claims.compare import interval, iqm
from dna.paper.experiments import beside, finished
from dna.paper.experiments.caption import caption
from dna.paper.experiments.lambda_levels import METHOD
from dna.paper.experiments.plan import Study
from dna.paper.experiments.published import ablation, column, own_games, published
from dna.paper.experiments.results import Results, normalized_scores
from dna.paper.experiments.rows import Row, length_of, mean_and_error
from dna.paper.experiments.worlds import axis

#: More columns of games than this are a table of their own.
WIDE = 20
#: What stands above tables that are of no study.
SAID = {
    "lambda_noise": "σ of each game with the 95 % interval of √B_simple. *Told*: the interval "
    f"is bounded above. The mean is of the games told at every λ. Measured {METHOD}.",
    "toy": "L_T1 and L_T2 are test errors: the mean of (prediction − noise-free value)² over "
    "an even grid, after training, averaged over seeds; ± s.e. is that mean's standard error.",
}
#: Headings of the toy problem's table.
TOY = {
    "sigma_1": "σ₁",
    "l_t1": "L_T1",
    "l_t1_se": "± s.e. of L_T1",
    "l_t2": "L_T2",
    "l_t2_se": "± s.e. of L_T2",
}


def tables(results: Results) -> dict[str, list[Row]]:
    """Name → rows: one table of each study, and what the paper prints beside the figures."""
    found = {one.name: _study(results, one) for one in results.experiment.studies}
    if "toy" in results.extra:
        rows = results.extra["toy"]["table"]
        found["toy"] = [{TOY.get(k, k): _plain(v) for k, v in row.items()} for row in rows]
    return found | beside.tables(results)


def _plain(value: Any) -> str:
    if value is None:
        return ""  # the standard error of one seed
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _study(results: Results, study: Study) -> list[Row]:
    if results.experiment.name == "tab05":
        return beside.times_table(results, study)
    if not study.world.total:
        return beside.tasks(results, study)
    return _scores(results, study)


def _scores(results: Results, study: Study) -> list[Row]:
    """A row for each arm: score, interquartile mean and interval, every environment."""
    printed = published(results.experiment, study.name)
    theirs = column(study, results.scale, length_of(results, study))
    unit, rows = axis(study.world, results.scale), []
    for arm in study.arms:
        row = _score(results, study, arm.name) | {"unit": unit}
        if printed.totals or printed.others:
            total = printed.totals.get(arm.name)
            row[theirs] = "" if total is None else f"{total:.4g}"
        row |= _ablated(results, study, arm.name)
        rows.append(row | _games(results, study, arm.name))
    return rows + _printed(results, study, theirs)


def _score(results: Results, study: Study, arm: str) -> Row:
    """Of an arm that has every game; one that lacks a game has no score of the benchmark."""
    view, digits = finished.complete(results, study.name), study.world.digits
    raw = finished.table(results, study.name, arm)
    row = {"arm": arm, "seeds": str(min(map(len, raw.values()), default=0))}
    if arm not in finished.arms(results, study.name):
        return row | {"score": "", "IQM": "", "IQM 95 %": ""}
    total = view.total(study.name, arm)
    # In the unit of the score beside it: returns of a single task are shown as they are.
    of_returns = study.world.axis == "return"
    scores = raw if of_returns else normalized_scores(view, study.name, arm)
    span = interval(iqm, scores)
    middle = iqm(np.array([x for one in scores.values() for x in one]))
    row["score"] = "" if total is None else f"{total:.{digits}f}"
    if sum(map(len, scores.values())) < beside.FEWEST_SEEDS:
        return row
    row["IQM"] = f"{middle:.{digits}f}"
    row["IQM 95 %"] = "" if span is None else f"{span[0]:.{digits}f} – {span[1]:.{digits}f}"
    return row


def _ablated(results: Results, study: Study, arm: str) -> Row:
    """What an arm of table 4 loses against DNA, ours and the paper's, in percent."""
    if results.experiment.name != "tab04":
        return {}
    view, theirs = finished.complete(results, study.name), ablation()[arm][1]
    both = [name for name in ("DNA", arm) if name in finished.arms(results, study.name)]
    totals = [view.total(study.name, name) for name in both] if len(both) == 2 else []
    known = [total for total in totals if total is not None]
    ours = f"{100 * (known[1] / known[0] - 1):+.1f}" if len(known) == 2 and known[0] else ""
    return {"against DNA, %": ours, "paper: against DNA, %": f"{theirs:+.1f}"}


def _games(results: Results, study: Study, arm: str) -> Row:
    if len(study.world.envs[results.scale]) > WIDE:
        return {}
    raw = finished.table(results, study.name, arm)
    every = finished.environments(results, study.name)
    return {env: mean_and_error(raw.get(env, ())) for env in every}


def _printed(results: Results, study: Study, theirs: str) -> list[Row]:
    """Who is no arm of ours; and tables 9 and 10 of the paper's games that a study plays."""
    printed = published(results.experiment, study.name)
    rows = {
        name: {"arm": f"paper: {name}", "unit": study.world.axis, theirs: f"{total:.4g}"}
        for name, total in printed.others.items()
    }
    envs = finished.environments(results, study.name)
    if len(envs) <= WIDE and own_games(study, results.scale):
        for env in envs:
            for who, score in (printed.games.get(atari_game(env) or "") or {}).items():
                row = rows.setdefault(who, {"arm": f"paper: {who}", "unit": "raw score"})
                row[env] = f"{score:g}"
    return list(rows.values()) + _ranges(envs)


def _ranges(envs: Sequence[str]) -> list[Row]:
    """Which returns of Procgen's games count as 0 and as 1."""
    known = {row["game"]: row for row in paper_table("procgen_ranges")}
    rows = []
    for end, key in (("0", "min"), ("1", "max")):
        cells = {e: f"{known[g][key]}" for e in envs if (g := procgen_game(e)) is not None}
        rows += [{"arm": f"counts as {end}", "unit": "return"} | cells] if cells else []
    return rows


def head(results: Results, name: str) -> str:
    """What stands above a table: units, and what must be said of the runs."""
    studies = {study.name: study for study in results.experiment.studies}
    lines = []
    if name in studies and results.experiment.name != "tab05":
        world = studies[name].world
        what = axis(world, results.scale) if world.total else "return"
        lines.append(f"Score: {what}. {_units(results, studies[name])}")
        origin = published(results.experiment, name).origin
        lines += [f"The paper's numbers: {origin}."] if origin else []
    lines += [SAID[name]] if name in SAID else []
    said = caption(results, name if name in studies else None)
    lines += [f"**{said[0].upper()}{said[1:]}.**"] if said else []
    return "".join(f"{line}\n\n" for line in lines)


def _units(results: Results, study: Study) -> str:
    """What interquartile means and the columns of games are measured in."""
    envs = study.world.envs[results.scale]
    if not study.world.total:
        return (
            "Tasks: mean ± standard error over seeds; they share no scale, hence no total. "
            "DNA against PPO: percent of PPO's return, both counted from uniform actions'."
        )
    if study.world.axis == "return":
        seeds = [len(results.of(study.name, arm.name)) for arm in study.arms]
        middle = "IQM: of the same returns. " if max(seeds) >= beside.FEWEST_SEEDS else ""
        return f"{middle}Tasks: mean ± standard error over seeds."
    whose = "human-normalized scores, %" if atari_game(envs[0]) else "the same scores by game"
    return f"IQM: of {whose}. Games: raw score, mean ± standard error over seeds."


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Every heading of any row, in order."""
    return list(dict.fromkeys(key for row in rows for key in row))


def markdown(rows: Sequence[Row], without: Sequence[str] = ()) -> str:
    """A pipe table; columns that are empty throughout are left out."""
    columns = [c for c in columns_of(rows) if any(row.get(c) for row in rows)]
    columns = [c for c in columns if c not in without]
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(row.get(c, "") for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """The same for programs, with the unit of scores as a column."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
