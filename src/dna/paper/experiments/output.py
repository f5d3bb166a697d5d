"""What an experiment leaves behind: figures, tables, verdicts and one JSON that names them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dna.common.errors import StorageFailure
from dna.common.storage import read_json, write, write_json
from dna.envs.benchmark_scores import paper_table
from dna.paper.claims.verdicts import COMPUTED, SIMULATED, Finding
from dna.paper.experiments.caption import caption
from dna.paper.experiments.finished import unfinished
from dna.paper.experiments.plan import Experiment, Limits, Scale, is_proxy
from dna.paper.experiments.results import PROXY, Results
from dna.paper.experiments.tables import as_csv, head, markdown, tables


def folder_of(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits | None = None
) -> Path:
    """Where an experiment of a scale is written; one that is cut short stands apart."""
    return out / f"{experiment.name}-{scale}{limits or ''}"


def verdicts(results: Results) -> dict[str, Finding]:
    """Claim → what came of it; seconds of training say nothing."""
    found = {}
    for claim, check in results.experiment.checks.items():
        one = check(results)
        trained = one.note != COMPUTED and not one.note.startswith(SIMULATED)
        if trained and results.scale == "smoke":
            one = Finding("not tested", one.effect, "smoke runs show wiring only")
        elif trained and results.scale == "paper" and results.limits.interactions:
            one = Finding("not tested", one.effect, f"{results.limits.words}: not the paper's")
        elif trained and one.effect:
            # That other games were played is said first.
            parts = sorted(
                [results.limits.words, *one.note.split("; ")], key=lambda w: w != PROXY
            )
            one = replace(one, note="; ".join(word for word in parts if word))
        found[claim] = one
    return found


def write_all(results: Results, folder: Path, figures: dict[str, bytes]) -> dict[str, Any]:
    """Everything of a finished (or half finished) experiment."""
    experiment, scale, named = results.experiment, results.scale, []
    for name, picture in figures.items():
        write(folder / name, picture)
    for study, rows in tables(results).items():
        file = f"{study.replace(' ', '_')}.md"
        # Markdown names the unit once, above the table.
        text = head(results, study) + markdown(rows, without=("unit",))
        write(folder / file, text.encode())
        write(folder / file.replace(".md", ".csv"), as_csv(rows).encode())
        named.append(file)
    tree = {
        "name": experiment.name,
        "alias": experiment.alias,
        "title": experiment.title,
        "scale": scale,
        "proxy": is_proxy(experiment, scale),
        "limits": results.limits.words,
        "cut": {"seeds": results.limits.seeds, "interactions": results.limits.interactions},
        "caption": caption(results),
        "unfinished": unfinished(results),
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


def largest(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits
) -> tuple[Path, dict[str, Any]] | None:
    """What was written of an experiment: as asked for, else not cut, else the largest cut.

    A cut of which runs are missing comes after any that is finished.
    """
    for cut in (limits, Limits()):
        folder = folder_of(experiment, scale, out, cut)
        if (tree := read_experiment(folder)) is not None:
            return folder, tree
    paths = sorted(out.glob(f"{folder_of(experiment, scale, out).name}-*"))
    found = [(path, tree) for path in paths if (tree := read_experiment(path)) is not None]
    return max(found, key=lambda one: _size(one[1]), default=None)


def _size(tree: dict[str, Any]) -> tuple[bool, int]:
    return tree["missing"] == 0, sum(run["interactions"] for run in tree["runs"])


def read_experiment(folder: Path) -> dict[str, Any] | None:
    """What `write_all` wrote, if it did."""
    path = folder / "experiment.json"
    if not path.is_file():
        return None
    anew = "delete it, `dna reproduce` writes it anew without training"
    try:
        tree = read_json(path)
    except StorageFailure as error:
        raise StorageFailure(f"{error}; {anew}") from error
    if not _is_experiment(tree):
        raise StorageFailure(f"{path}: not an experiment; {anew}")
    return dict(tree)


def _is_experiment(tree: Any) -> bool:
    """Whether everything is there that is read of it."""
    wanted = {"runs": {"digest", "interactions"}, "verdicts": {"id", "status", "note"}}
    return (
        isinstance(tree, dict)
        and isinstance(tree.get("missing"), int)
        and isinstance(tree.get("extra", {}), dict)
        and all(isinstance(tree.get(name), list) for name in wanted)
        and all(
            isinstance(row, dict) and keys <= set(row)
            for name, keys in wanted.items()
            for row in tree[name]
        )
    )
