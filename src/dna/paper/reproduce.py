"""Reproduce an experiment of the paper: plan, train what is missing, measure, write.

Finished runs are skipped and interrupted ones resumed. A run that fails does not stop the
others.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dna.common.console import typed
from dna.common.errors import BadInput, DnaError, Preempted, StorageFailure
from dna.common.storage import make_folder, read_json, write, write_json
from dna.envs.benchmark_scores import paper_table
from dna.paper import toy
from dna.paper.claims.verdicts import COMPUTED, SIMULATED, Status, Verdict, joined
from dna.paper.experiments import EXPERIMENTS
from dna.paper.figures import draw, draw_toy
from dna.paper.plan import Experiment, Limits, PlannedRun, Scale, is_proxy, planned
from dna.paper.results import PROXY, Results, RunResult, collect
from dna.paper.tables import as_csv, caption, head, markdown, tables
from dna.runs.setup import How
from dna.runs.sweeps.pool import Local, Place, Task, run_all, threads_for, uses_all_cores
from dna.runs.train import train

#: What to do about a damaged `experiment.json`.
FIX = "delete it, `dna reproduce` writes it again without training"


@dataclass(frozen=True)
class Where:
    """Folders: of the runs, by digest, and of the experiments made from them."""

    runs: Path = Path("runs")
    out: Path = Path("reproductions")


@dataclass(frozen=True)
class Watcher:
    """Callbacks that report progress."""

    tasks: Callable[[Sequence[Task]], None] = lambda tasks: None
    words: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class FailedRun:
    """A run that did not finish, and why."""

    run: PlannedRun
    words: str
    code: int  # exit code

    def __str__(self) -> str:
        return f"{self.run.arm} in {self.run.env}, seed {self.run.seed}: {self.words}"


class RunsFailed(DnaError):
    """Some runs failed. The results of the others are written, and in `tree`."""

    def __init__(self, failed: Sequence[FailedRun], planned: int, tree: dict[str, Any]) -> None:
        super().__init__(
            f"{len(failed)} of {planned} runs failed; {'; '.join(map(str, failed))}"
        )
        self.exit_code = failed[0].code
        self.tree = tree


def reproduce(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    place: Place | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Run an experiment; return the contents of its `experiment.json`.

    Failed runs raise `RunsFailed` after the others are finished and summarized.
    """
    watcher = watcher or Watcher()
    check_cut(experiment, limits)
    make_folder(where.out)  # fails now, not after hours of training
    runs = planned(experiment, scale, limits)
    check_environments(unfinished(runs, where.runs))
    try:
        failed = execute(runs, where.runs, scale, place, watcher.tasks)
    except Preempted:
        text = (
            "stopped; the same command continues where it was, --finished shows what there is"
        )
        raise Preempted(text) from None
    return summarize(experiment, scale, where, limits, watcher, failed)


def check_cut(experiment: Experiment, limits: Limits | None) -> None:
    """Refuse to limit the interactions of an experiment that has no runs."""
    if limits is not None and limits.interactions and not experiment.studies:
        raise BadInput(f"--interactions: {experiment.alias} trains no agent, so it has none")


def check_environments(runs: Sequence[PlannedRun]) -> None:
    """Refuse environments that cannot be made (a library may be missing) before training."""
    from dna.envs import Making, make

    seen: set[str] = set()
    for run in runs:
        family = run.env.partition("/")[0]
        if family in seen:
            continue
        seen.add(family)
        try:
            make(run.config.env, Making(1, (0,))).close()
        except BadInput as error:
            raise BadInput(f"{run.env}: {error}") from None


# --- Training -----------------------------------------------------------------------------


def unique(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Remove duplicates: runs that several arms or figures share."""
    return list({run.digest: run for run in runs}.values())


def unfinished(runs: Sequence[PlannedRun], root: Path) -> list[PlannedRun]:
    """Return the runs that are left to do."""
    return [run for run in unique(runs) if not (root / run.digest / "done").is_file()]


def execute(
    runs: Sequence[PlannedRun],
    root: Path,
    scale: Scale,
    place: Place | None = None,
    report: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> list[FailedRun]:
    """Train what is not finished, in subprocesses; return what failed.

    Smoke runs are trained one after the other in this process.
    """
    left = unfinished(runs, root)
    if scale == "smoke" and (place is None or not place.preempts):
        return [found for run in left if (found := _train_here(run, root)) is not None]
    tasks = {run.digest: Task(run.config, run.seed, root / run.digest) for run in left}
    for group, where in _groups(list(tasks.values()), place):
        for task in group:
            task.options = threads_for(task.config, where)
        run_all(group, where, report=report)
    failed = []
    for run in left:
        task = tasks[run.digest]
        if task.state != "done":
            words = task.message or f"`dna resume {typed(task.folder)}` continues it"
            failed.append(FailedRun(run, words, max(task.code, 1)))
    return failed


def _train_here(run: PlannedRun, root: Path) -> FailedRun | None:
    """Train in this process."""
    how = How(tensorboard=False, compile="off", threads=1)
    try:
        train(run.config, run.seed, root / run.digest, how=how)
    except Preempted:
        raise
    except DnaError as error:
        return FailedRun(run, str(error), error.exit_code)
    return None


def _groups(tasks: list[Task], place: Place | None) -> list[tuple[list[Task], Place]]:
    """Decide where tasks run by default: large ones use all cores, so one at a time."""
    if place is not None:
        return [(tasks, place)] if tasks else []
    small = [task for task in tasks if not uses_all_cores(task.config)]
    large = [task for task in tasks if uses_all_cores(task.config)]
    groups: list[tuple[list[Task], Place]] = [
        (small, Local(os.cpu_count() or 1)),
        (large, Local(1)),
    ]
    return [(group, where) for group, where in groups if group]


# --- Summarizing --------------------------------------------------------------------------


def summarize(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    watcher: Watcher | None = None,
    failed: Sequence[FailedRun] | None = None,
) -> dict[str, Any]:
    """Write figures, tables and verdicts of whatever is finished; then raise what failed.

    `failed`: the runs that have just failed. None: nothing was run, so nothing is measured.
    """
    watcher = watcher or Watcher()
    folder = folder_of(experiment, scale, where.out, limits)
    runs = planned(experiment, scale, limits)
    results = collect(experiment, scale, runs, where.runs, limits)
    results = replace(results, extra=_extra(results, folder, watcher, failed is not None))
    every_failed = list(failed or ())
    for run, words in results.damaged:
        text = f"{words}; delete its folder to train it again"
        every_failed.append(FailedRun(run, text, StorageFailure.exit_code))
    watcher.words("drawing")
    pictures = draw(results)
    if "toy" in results.extra:
        found = toy.run_toy(folder / "toy", scale, seeds=results.limits.seeds)
        pictures["figure.png"] = draw_toy(found, caption(results))
    tree = write_all(results, folder, pictures)
    if every_failed:
        tree["failed"] = [str(one) for one in every_failed]
        write_json(folder / "experiment.json", tree)
        raise RunsFailed(every_failed, len(unique(runs)), tree)
    return tree


def _extra(results: Results, folder: Path, watcher: Watcher, ran: bool) -> dict[str, Any]:
    """Return what is measured after the runs; it is kept for as long as the runs are the same.

    Without runs there is nothing to recognize it by: it is measured again.
    """
    kept: dict[str, Any] = {}
    with suppress(StorageFailure):  # a damaged file is about to be overwritten
        kept = read_experiment(folder) or {}
    runs = sorted(one.run.digest for one in results.outcomes)
    same = runs and sorted(run["digest"] for run in kept.get("runs", [])) == runs
    found: dict[str, Any] = {}
    for name, measure in results.experiment.extra.items():
        value = kept.get("extra", {}).get(name) if same or (not runs and not ran) else None
        if value is None and ran:
            value = measure(results, folder, watcher.words)
        if value is not None:
            found[name] = value
    return found


def all_verdicts(
    scale: Scale, where: Where, limits: Limits | None = None, only: Experiment | None = None
) -> list[dict[str, str]]:
    """Return the verdicts on all claims of the paper, or on those of one experiment.

    They are read from the experiment's folder, else judged on its finished runs. Where only
    limited experiments exist, the largest is taken and its folder is named.
    """
    rows: list[dict[str, str]] = []
    for one in EXPERIMENTS if only is None else (only,):
        found = largest(one, scale, where.out, limits or Limits())
        if found is None:
            runs = planned(one, scale, limits) if where.runs.is_dir() else ()
            results = collect(one, scale, runs, where.runs, limits)
            rows += verdict_rows(verdicts(results))
            continue
        folder, tree = found
        cut = folder != folder_of(one, scale, where.out)
        try:
            judged = current_verdicts(tree)
        except ValidationError:
            file = folder / "experiment.json"
            raise StorageFailure(f"{file}: not an experiment; {FIX}") from None
        for row in judged:
            source = f"from {folder.name}" if cut and row["note"] != COMPUTED else ""
            rows.append(row | {"note": joined(row["note"], source)})
    return sorted(rows, key=lambda row: row["id"])


# --- Verdicts and files -------------------------------------------------------------------


def folder_of(
    experiment: Experiment, scale: Scale, out: Path, limits: Limits | None = None
) -> Path:
    """Folder of an experiment at a scale; limited ones have their own."""
    return out / f"{experiment.name}-{scale}{limits or ''}"


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


class _ToyCells(BaseModel):
    """What the toy problem keeps of its cells: only the verdicts on them."""

    verdicts: dict[str, tuple[Status, str, str]]


class _ToyExtra(BaseModel):
    """The measurements of the toy problem."""

    toy: _ToyCells


class _KeptToy(BaseModel):
    """The part of `experiment.json` from which the toy problem is judged."""

    scale: Scale
    cut: Limits = Limits()
    extra: _ToyExtra


def current_verdicts(tree: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the verdicts of a written experiment, by current rules where they need no runs.

    Only the toy problem keeps everything that its verdicts need; verdicts on runs are those
    that were reached when they were summarized. Raises `ValidationError` if the toy problem's
    part is damaged.
    """
    extra = tree.get("extra")
    known = [one for one in EXPERIMENTS if one.name == tree.get("name") and "toy" in one.extra]
    if not known or not isinstance(extra, dict) or "toy" not in extra:
        return list(tree.get("verdicts", []))
    kept = _KeptToy.model_validate(tree)
    found = Results(known[0], kept.scale, (), 0, kept.cut, kept.extra.model_dump())
    return verdict_rows(verdicts(found))


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

    Complete ones come before those with missing runs.
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
    try:
        tree = read_json(path)
    except StorageFailure as error:
        raise StorageFailure(f"{error}; {FIX}") from error
    if not _is_experiment(tree):
        raise StorageFailure(f"{path}: not an experiment; {FIX}")
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
