"""The page's sections that are words and numbers: runs, time, evaluation, machine, files."""

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np

from dna.evaluation.report import formats
from dna.evaluation.report.curves import SMALL, Section
from dna.evaluation.report.data import RunData, bytes_of
from dna.evaluation.report.groups import Group
from dna.evaluation.report.markup import Html, el, folded, join, table
from dna.evaluation.report.series import curve, room, thin
from dna.evaluation.report.svg import Line, Look, chart

#: Parts of an iteration below this share of the time are added up.
LEAST = 0.005


def runs(found: list[RunData]) -> Section | None:
    """One line per run."""
    head = ["run", "algorithm", "environment", "seed", "interactions", "episodes", "score"]
    rows = [
        [
            el("code", str(run.path)),
            run.config.algorithm.upper(),
            run.environment,
            str(run.seed),
            formats.count(run.interactions),
            formats.count(run.metrics.last("episodes") or 0),
            formats.number(run.score),
            formats.duration(run.seconds),
            state_chip(run.state),
        ]
        for run in found
    ]
    body = table([*head, "time", "state"], rows, "Runs", numeric=range(3, 8))
    return Section("runs", "Runs", body) if rows else None


def state_chip(state: str) -> Html:
    """finished, training or not running."""
    return el("span", state, class_=f"chip {state.replace(' ', '-')}")


def time(groups: dict[str, list[Group]]) -> Section | None:
    """Where the wall-clock time went, and the speed over the run."""
    parts: list[Html] = []
    named = sum(len(found) for found in groups.values()) > 1
    for env, found in groups.items():
        for group in found:
            split = _split(group.runs)
            if split:
                head = el("h3", f"{group.name} on {env}") if named else Html("")
                both = el("div", split, _speed(group), class_="grid-of-charts two free")
                parts += [head, both]
    return Section("time", "Time", join(parts)) if parts else None


def _split(found: Iterable[RunData]) -> Html:
    """Seconds of every part over all seeds, largest first."""
    seconds: dict[str, float] = {}
    total = 0.0
    for run in found:
        total += run.seconds
        for name in run.timings.names("time/"):
            part = name.removeprefix("time/")
            seconds[part] = seconds.get(part, 0.0) + float(np.nansum(run.timings[name]))
    seconds.pop("elapsed", None)
    total = max(total, sum(seconds.values()))
    if total <= 0:
        return Html("")
    large = {part: spent for part, spent in seconds.items() if spent >= LEAST * total}
    rest = total - sum(large.values())
    rows = [
        *sorted(large.items(), key=lambda item: -item[1]),
        *([("everything else", rest)] if rest >= LEAST * total else []),
    ]
    bars = (_bar(part, spent, spent / total) for part, spent in rows)
    caption = el("figcaption", el("b", "time/…"), el("span", formats.duration(total)))
    return el("figure", caption, el("ul", *bars, class_="bars"), class_="chart")


def _bar(part: str, spent: float, share: float) -> Html:
    rect = el("rect", width=f"{100 * share:.2f}%", height="100%", rx=2)
    return el(
        "li",
        el("span", part, class_="part"),
        el("svg", rect, class_="bar", aria_hidden="true"),
        el("span", formats.percent(share), class_="n"),
        el("span", formats.duration(spent), class_="n soft"),
    )


def _speed(group: Group) -> Html:
    """Interactions per second, seed by seed."""
    lines: list[Line] = []
    for run in group.runs:
        one = curve(run.timings["interactions"], run.timings["rate"])
        name = f"seed {run.seed}"
        points = room(len(group.runs), SMALL)
        lines.append(Line(name, thin(one, points), group.color + len(lines)))
    return chart(lines, Look("rate", "interactions per second"))


def evaluation(found: list[RunData]) -> Section | None:
    """`eval.json`: fresh episodes, and a random agent beside if it was played."""
    rows = []
    for run in found:
        for who in ("policy", "random"):
            result = run.evaluation.get(who)
            if isinstance(result, dict):
                name = run.config.algorithm.upper() if who == "policy" else "random agent"
                rows.append([name, run.environment, str(run.seed), *_played(result)])
    head = ["who", "environment", "run's seed", "mean", "std", "95 % of the mean", "range"]
    head += ["episodes", "normalized"]
    if all(row[-1] == "–" for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    body = table(head, rows, "Evaluation", numeric=range(2, 9))
    return Section("evaluation", "Evaluation", body) if rows else None


def _played(result: dict[str, Any]) -> list[str]:
    def value(name: str) -> str:
        given = result.get(name)
        known = isinstance(given, int | float)
        return formats.number(float(given)) if known else "–"  # type: ignore[arg-type]

    scaled = "–"
    if "human_normalized" in result:
        scaled = f"{value('human_normalized')} % of human"
    elif "normalized" in result:
        scaled = value("normalized")
    interval = f"{value('low')} to {value('high')}"
    spread = f"{value('min')} to {value('max')}"
    return [value("mean"), value("std"), interval, spread, value("episodes"), scaled]


def films(found: list[RunData]) -> Section | None:
    """Recorded episodes, inside the page."""
    figures = [_film(run) for run in found if run.film is not None]
    body = el("div", *figures, class_="films")
    return Section("films", "Recorded episodes", body) if figures else None


def _film(run: RunData) -> Html:
    assert run.film is not None
    title = f"{run.config.algorithm.upper()} on {run.environment}, seed {run.seed}"
    data = bytes_of(run.film)
    if data is None or data[4:8] != b"ftyp":
        why = "is too large to be put into a page" if data is None else "is not an mp4 film"
        return el("p", el("code", str(run.film)), f" {why}.")
    video = el(
        "video",
        src=f"data:video/mp4;base64,{base64.b64encode(data).decode()}",
        controls=True,
        loop=True,
        muted=True,
        playsinline=True,
        preload="auto",
        aria_label=title,
    )
    return el("figure", video, el("figcaption", title))


def checkpoints(found: list[RunData]) -> Section | None:
    """What of each run was saved, and when."""
    parts = []
    for run in found:
        rows = [
            [
                formats.count(one.interactions),
                formats.number(one.score),
                formats.size(one.size) if one.size is not None else "not readable",
                one.saved,
            ]
            for one in run.checkpoints()
        ]
        if rows:
            label = f"{run.path}: {len(rows)} checkpoints, newest {rows[-1][3]}"
            head = ["interactions", "score", "size", "saved"]
            parts.append(folded(label, table(head, rows, label, numeric=range(3))))
    return Section("checkpoints", "Checkpoints", join(parts)) if parts else None
