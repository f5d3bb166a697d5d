"""What an experiment writes: figures, tables, verdicts, and `experiment.json` naming them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dna.common.errors import StorageFailure
from dna.common.storage import read_json, write, write_json
from dna.envs.benchmark_scores import paper_table
from dna.paper.claims.verdicts import COMPUTED, SIMULATED, Verdict
from dna.paper.plan import Experiment, Limits, Scale, is_proxy
from dna.paper.results import PROXY, Results, RunResult
from dna.paper.tables import as_csv, caption, head, markdown, tables


def folder_of(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits | None = None
) -> Path:
    """Folder of an experiment at a scale; limited ones have their own."""
    return out / f"{experiment.name}-{scale}{limits or ''}"


# --- Verdicts -----------------------------------------------------------------------------


def verdicts(results: Results) -> dict[str, Verdict]:
    """Claim → verdict, with the caveats of the scale and of the user's limits."""
    found = {}
    for claim, check in results.experiment.checks.items():
        one = check(results)
        trained = one.note != COMPUTED and not one.note.startswith(SIMULATED)
        if trained and results.scale == "smoke":
            one = Verdict(
                "not tested", one.effect, "smoke runs only show that the wiring works"
            )
        elif trained and results.scale == "paper" and results.limits.interactions:
            one = Verdict("not tested", one.effect, f"{results.limits.words}: not the paper's")
        elif trained and one.effect:
            # A proxy is named first.
            parts = sorted(
                [results.limits.words, *one.note.split("; ")], key=lambda w: w != PROXY
            )
            one = replace(one, note="; ".join(word for word in parts if word))
        found[claim] = one
    return found


def verdict_rows(found: dict[str, Verdict]) -> list[dict[str, str]]:
    """Verdicts with the claims' wording and the paper's value, in order."""
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


# --- Files --------------------------------------------------------------------------------


def write_all(results: Results, folder: Path, figures: dict[str, bytes]) -> dict[str, Any]:
    """Write figures, tables and `experiment.json`; return what the latter holds."""
    experiment = results.experiment
    for name, picture in figures.items():
        write(folder / name, picture)
    named = []
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
        "scale": results.scale,
        "proxy": is_proxy(experiment, results.scale),
        "limits": results.limits.words,
        "cut": {"seeds": results.limits.seeds, "interactions": results.limits.interactions},
        "caption": caption(results),
        "unfinished": results.unfinished(),
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


def _run(outcome: RunResult) -> dict[str, Any]:
    return {
        "study": outcome.run.study,
        "arm": outcome.run.arm,
        "env": outcome.run.env,
        "seed": outcome.run.seed,
        "folder": str(outcome.folder),
        "digest": outcome.run.digest,
        "interactions": outcome.rows[-1]["interactions"],
        "score": outcome.score,
        "seconds": outcome.seconds,
    }


def largest(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits
) -> tuple[Path, dict[str, Any]] | None:
    """Find a written experiment: with these limits, else without, else the largest limited one.

    Complete ones come before those of which runs are missing.
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
    """Read `experiment.json` from a folder; None if there is none."""
    path = folder / "experiment.json"
    if not path.is_file():
        return None
    fix = "delete it, `dna reproduce` writes it again without training"
    try:
        tree = read_json(path)
    except StorageFailure as error:
        raise StorageFailure(f"{error}; {fix}") from error
    if not _is_experiment(tree):
        raise StorageFailure(f"{path}: not an experiment; {fix}")
    return dict(tree)


def _is_experiment(tree: Any) -> bool:
    """Return whether all keys that are read later are there."""
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
