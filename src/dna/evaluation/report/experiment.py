"""Sections of an experiment's page: verdicts, figures, tables and curves of every arm."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dna.common.errors import BadInput, StorageFailure
from dna.common.storage import read_json
from dna.evaluation.report.charts import Look, chart
from dna.evaluation.report.curves import ABOUT, SMALL, lines_of
from dna.evaluation.report.data import Group, RunData, bytes_of
from dna.evaluation.report.markup import (
    Html,
    PageSection,
    el,
    folded,
    join,
    markdown,
    number,
    table,
)
from dna.runs.folder import RunFolder

PNG = b"\x89PNG\r\n\x1a\n"
#: Narrower pictures (in pixels) would look blurry if they filled the page.
NARROW = 640


#: Returns the verdicts of an experiment, given the content of its `experiment.json`.
Judge = Callable[[dict[str, Any]], list[dict[str, str]]]


class ExperimentRun(BaseModel):
    """One run of an experiment."""

    study: str
    arm: str
    env: str
    seed: int
    folder: str
    digest: str = ""  # of its configuration and seed: the name of its folder
    score: float | None = None


class ClaimVerdict(BaseModel):
    """The verdict on one claim of the paper."""

    id: str
    claim: str
    status: str
    effect: str = ""
    note: str = ""
    paper: str = ""


class About(BaseModel):
    """The content of `experiment.json`."""

    name: str
    title: str
    alias: str = ""
    scale: str = ""
    proxy: bool = False
    caption: str = ""  # says if runs are a proxy, shortened or missing
    missing: int = 0
    covers: list[str] = []
    runs: list[ExperimentRun] = []
    failed: list[str] = []  # the run and the reason
    verdicts: list[ClaimVerdict] = []
    figures: list[str] = []
    tables: list[str] = []


@dataclass
class ExperimentFolder:
    """An experiment's folder, and those of its runs that still exist."""

    path: Path
    about: About
    runs: dict[str, RunData] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, judge: Judge | None = None) -> "ExperimentFolder":
        """Read `experiment.json`, and every run folder that still exists.

        `judge` returns the verdicts; None: those in the file.
        """
        file = path / "experiment.json"
        try:
            tree = read_json(file)
            about = About.model_validate(tree)
            if judge is not None:
                about.verdicts = [ClaimVerdict.model_validate(one) for one in judge(tree)]
        except ValidationError as error:
            place = ".".join(str(key) for key in error.errors()[0]["loc"]) or "it"
            raise StorageFailure(f"{file}: not an experiment ({place} is wrong)") from None
        found = cls(path, about)
        for name in dict.fromkeys(planned.folder for planned in about.runs):
            folder = found._run_folder(name)
            if folder is not None:
                found.runs[name] = RunData.of(folder)
        return found

    def _run_folder(self, name: str) -> Path | None:
        for path in (Path(name), self.path / name):
            try:
                if RunFolder(path).exists:
                    return path
            except BadInput:  # a name that no file can have
                continue
        return None

    def inside(self, names: list[str], ending: str) -> Iterator[tuple[str, bytes]]:
        """Yield files of the experiment's folder; a name that leads out of it is refused."""
        root = self.path.resolve()
        for name in names:
            if "\0" in name or not name.endswith(ending):
                raise StorageFailure(f"{self.path}: {name!r} is not a name ending in {ending}")
            path = (self.path / name).resolve()
            if not path.is_relative_to(root):
                raise StorageFailure(f"{self.path}: {name!r} is outside of the experiment")
            data = bytes_of(path) if path.is_file() else None
            if data is not None:
                yield name, data


def is_experiment(path: Path) -> bool:
    """Return whether a folder holds an experiment."""
    try:
        return (path / "experiment.json").is_file()
    except OSError:  # a name that no file can have
        return False


def sections(experiment: ExperimentFolder) -> list[PageSection | None]:
    """Return the sections of the page, from the verdicts to the runs behind them."""
    return [
        verdicts(experiment.about.verdicts),
        figures(experiment),
        tables(experiment),
        curves(experiment),
        _runs(experiment.about),
    ]


def verdicts(found: list[ClaimVerdict]) -> PageSection | None:
    """Show the claims and their verdicts."""
    rows = [
        [
            el("code", one.id),
            el("span", one.status, class_=f"chip {_chip(one.status)}"),
            one.claim,
            one.effect or "–",
            one.paper or "–",
            one.note,
        ]
        for one in found
    ]
    head = ["id", "verdict", "claim", "measured", "paper", "note"]
    body = el("div", table(head, rows, "Verdicts"), class_="verdicts")
    return PageSection("verdicts", "The paper's claims", body) if rows else None


def _chip(status: str) -> str:
    known = {"held": "held", "not held": "not-held"}
    return known.get(status, "not-tested")


def figures(experiment: ExperimentFolder) -> PageSection | None:
    """Embed the experiment's figures."""
    parts = []
    for name, data in experiment.inside(experiment.about.figures, ".png"):
        if data.startswith(PNG):
            source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
            title = f"{experiment.about.title}: {name}"
            image = el("img", src=source, alt=title)
            # On a narrow screen the picture keeps its size and scrolls.
            frame = el(
                "div", image, class_="scroll", role="region", aria_label=name, tabindex=0
            )
            small = int.from_bytes(data[16:20]) < NARROW
            parts.append(el("figure", frame, class_="picture small" if small else "picture"))
    return PageSection("figures", "Figures", join(parts)) if parts else None


def tables(experiment: ExperimentFolder) -> PageSection | None:
    """Show the experiment's tables."""
    parts = []
    for name, data in experiment.inside(experiment.about.tables, ".md"):
        title = Path(name).stem.replace("_", " ")
        parts += [el("h3", title), markdown(data.decode("utf-8", "replace"), title)]
    return PageSection("tables", "Tables", join(parts)) if parts else None


def curves(experiment: ExperimentFolder) -> PageSection | None:
    """Chart the score of every arm, by study and environment."""
    arms: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for one in experiment.about.runs:
        if one.folder in experiment.runs:
            place = arms.setdefault((one.study, one.env), {})
            place.setdefault(one.arm, []).append(experiment.runs[one.folder])
    colors: dict[tuple[str, str], int] = {}
    charts: dict[str, list[Html]] = {}
    for (study, env), found in arms.items():
        groups = [_arm(study, arm, runs, colors) for arm, runs in found.items()]
        drawn = chart(
            lines_of(groups, "score", most=SMALL), Look(env, f"score, {ABOUT['score']}")
        )
        charts.setdefault(study, []).extend([drawn] if drawn else [])
    parts = [
        join([el("h3", study), el("div", *drawn, class_="grid-of-charts two")])
        for study, drawn in charts.items()
        if drawn
    ]
    return PageSection("learning", "Learning curves", join(parts)) if parts else None


def _arm(
    study: str, arm: str, runs: list[RunData], colors: dict[tuple[str, str], int]
) -> Group:
    used = sum(place == study for place, _ in colors)
    return Group(arm, colors.setdefault((study, arm), used), tuple(runs))


def _runs(about: About) -> PageSection | None:
    """List the failed runs, and on demand all finished ones."""
    rows: list[list[Any]] = [
        [
            one.study,
            one.arm,
            one.env,
            str(one.seed),
            number(one.score),
            el("code", one.digest) if one.digest else "–",
        ]
        for one in about.runs
    ]
    head = ["study", "arm", "environment", "seed", "score", "digest"]
    parts: list[Html] = []
    if about.failed:
        failed = el("ul", *(el("li", one) for one in about.failed), class_="failed")
        parts = [el("h3", "Failed"), failed]
    if rows:
        every = table(head, rows, "Runs", numeric=(3, 4))
        parts.append(folded(f"All {len(rows)} finished runs", every))
    return PageSection("runs", "Runs", join(parts)) if parts else None
