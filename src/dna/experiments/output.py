"""What an experiment leaves behind: figures, tables, verdicts and one JSON that names them."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dna.experiments.compare import interval, iqm, standard_error
from dna.experiments.plan import Experiment, Limits, Scale, is_proxy
from dna.experiments.results import Results, normalized_scores
from dna.experiments.verdicts import COMPUTED, Finding
from dna.experiments.worlds import axis
from dna.scores import paper_table
from dna.storage import read_json, write, write_json

Row = dict[str, str]


def folder_of(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits | None = None
) -> Path:
    """Where an experiment of a scale is written; one that is cut short stands apart."""
    return out / f"{experiment.name}-{scale}{limits or ''}"


def verdicts(results: Results) -> dict[str, Finding]:
    """Claim → what came of it; seconds of training say nothing."""
    found, proxy = {}, is_proxy(results.experiment, results.scale)
    for claim, check in results.experiment.checks.items():
        one = check(results)
        trained = one.note != COMPUTED
        if trained and results.scale == "smoke":
            one = Finding("not tested", one.effect, "smoke runs show wiring only")
        elif trained and results.scale == "paper" and results.limits.interactions:
            one = Finding("not tested", one.effect, f"{results.limits.words}: not the paper's")
        elif trained and one.status != "not tested":
            said = ["proxy"] * proxy + [results.limits.words, one.note]
            one = Finding(one.status, one.effect, "; ".join(word for word in said if word))
        found[claim] = one
    return found


def tables(results: Results) -> dict[str, list[Row]]:
    """Study → one row per arm: score, its error, interquartile mean, every environment."""
    found = {study.name: _rows(results, study.name) for study in results.experiment.studies}
    if "toy" in results.extra:
        rows = results.extra["toy"]["table"]
        found["toy"] = [{k: _plain(v) for k, v in row.items()} for row in rows]
    return found


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _rows(results: Results, study: str) -> list[Row]:
    rows, printed = [], _printed(results.experiment)
    for arm in results.study(study).arms:
        scores = normalized_scores(results, study, arm.name)
        raw, total = results.table(study, arm.name), results.total(study, arm.name)
        row = {"arm": arm.name, "seeds": str(min(map(len, raw.values()), default=0))}
        row["score"] = "" if total is None else f"{total:.1f}"
        middle = iqm(np.array([x for one in scores.values() for x in one])) if scores else None
        span = interval(iqm, scores) if scores else None
        row["IQM"] = "" if middle is None else f"{middle:.1f}"
        row["IQM 95 %"] = "" if span is None else f"{span[0]:.1f} – {span[1]:.1f}"
        row["paper"] = printed.get(arm.name, "")
        row |= {env: _mean_and_error(found) for env, found in raw.items()}
        rows.append(row)
    return rows


def _mean_and_error(found: Sequence[float]) -> str:
    error = standard_error(found)
    mean = float(np.mean(found))
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _printed(experiment: Experiment) -> dict[str, str]:
    """Arm → the paper's number, where it prints one."""
    if experiment.name == "tab04":
        rows = {row["run"]: row["atari5_score"] for row in paper_table("ablation")}
        return rows | {
            "DNA": rows["DNA (ref)"],
            "DNA (λ=0.95)": rows["DNA (lambda_V=lambda_pi=0.95)"],
        }
    if experiment.name == "fig06":
        return {"DNA": "252"}
    return {}


def markdown(rows: Sequence[Row]) -> str:
    """A pipe table; columns that are empty throughout are left out."""
    columns = [c for c in (rows[0] if rows else {}) if any(row.get(c) for row in rows)]
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(row.get(c, "") for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """The same for programs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_all(results: Results, folder: Path, figures: dict[str, bytes]) -> dict[str, Any]:
    """Everything of a finished (or half finished) experiment."""
    experiment, scale, named = results.experiment, results.scale, []
    for name, picture in figures.items():
        write(folder / name, picture)
    for study, rows in tables(results).items():
        file = f"{study.replace(' ', '_')}.md"
        write(folder / file, (_head(results, study) + markdown(rows)).encode())
        write(folder / file.replace(".md", ".csv"), as_csv(rows).encode())
        named.append(file)
    tree = {
        "name": experiment.name,
        "alias": experiment.alias,
        "title": experiment.title,
        "scale": scale,
        "proxy": is_proxy(experiment, scale),
        "limits": results.limits.words,
        "covers": list(experiment.covers),
        "missing": results.missing,
        "runs": [_run(one) for one in results.outcomes],
        "verdicts": verdict_rows(verdicts(results)),
        "figures": list(figures),
        "tables": named,
        "extra": dict(results.extra),
    }
    write_json(folder / "experiment.json", tree)
    return tree


def _head(results: Results, study: str) -> str:
    known = [one.name for one in results.experiment.studies]
    if study not in known:
        return ""
    return f"Score: {axis(results.study(study).world, results.scale)}\n\n"


def _run(outcome: Any) -> dict[str, Any]:
    run = outcome.run
    about = {"study": run.study, "arm": run.arm, "env": run.env, "seed": run.seed}
    return about | {
        "folder": str(outcome.folder),
        "digest": run.digest,
        "interactions": outcome.rows[-1]["interactions"],
        "score": outcome.score,
        "seconds": outcome.seconds,
    }


def verdict_rows(found: dict[str, Finding]) -> list[dict[str, str]]:
    """Claims with their words and what the paper says, in order."""
    printed = {row["id"]: row for row in paper_table("claims")}
    return [
        {
            "id": claim,
            "claim": printed[claim]["claim"],
            "status": one.status,
            "effect": one.effect,
            "note": one.note,
            "paper": printed[claim]["paper_value"],
        }
        for claim, one in sorted(found.items())
    ]


def read_experiment(folder: Path) -> dict[str, Any] | None:
    """What `write_all` wrote, if it did."""
    path = folder / "experiment.json"
    tree: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return tree
