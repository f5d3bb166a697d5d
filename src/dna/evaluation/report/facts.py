"""Sections of the page with tables: runs, time, evaluation, videos, settings, machine."""

import base64
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from dna.common.errors import BadInput, MissingExtra
from dna.config import Config, json_tree
from dna.config.overrides import differences, digest
from dna.config.presets import family, for_environment
from dna.evaluation.report import markup
from dna.evaluation.report.charts import Line, Look, chart, curve, room, thin
from dna.evaluation.report.curves import SMALL
from dna.evaluation.report.data import Group, RunData, bytes_of
from dna.evaluation.report.markup import Html, PageSection, el, folded, join, pairs, table

#: Parts of an iteration below this share of the time are combined.
LEAST = 0.005


def runs(found: list[RunData]) -> PageSection | None:
    """List the runs."""
    head = ["run", "algorithm", "environment", "seed", "interactions", "episodes", "score"]
    rows = [
        [
            el("code", str(run.path)),
            run.config.algorithm.upper(),
            run.environment,
            str(run.seed),
            markup.count(run.interactions),
            markup.count(run.metrics.last("episodes") or 0),
            markup.number(run.score),
            markup.duration(run.seconds),
            state_chip(run.state),
        ]
        for run in found
    ]
    body = table([*head, "time", "state"], rows, "Runs", numeric=range(3, 8))
    return PageSection("runs", "Runs", body) if rows else None


def state_chip(state: str) -> Html:
    """Return the state of a run as a colored label."""
    return el("span", state, class_=f"chip {state.replace(' ', '-')}")


def time(groups: dict[str, list[Group]]) -> PageSection | None:
    """Show where the wall-clock time went, and the speed over the run."""
    parts: list[Html] = []
    named = sum(len(found) for found in groups.values()) > 1
    for env, found in groups.items():
        for group in found:
            split = _split(group.runs)
            if split:
                head = el("h3", f"{group.name} on {env}") if named else Html("")
                both = el("div", split, _speed(group), class_="grid-of-charts two free")
                parts += [head, both]
    return PageSection("time", "Time", join(parts)) if parts else None


def _split(found: Iterable[RunData]) -> Html:
    """Return bars of the seconds of every part over all seeds, largest first."""
    seconds: dict[str, float] = {}
    total = 0.0
    for run in found:
        total += run.seconds
        for name in run.timings.names("time/"):
            part = name.removeprefix("time/")
            spent = run.timings[name]
            seconds[part] = seconds.get(part, 0.0) + float(spent[np.isfinite(spent)].sum())
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
    bars = (_bar(part, taken, taken / total) for part, taken in rows)
    caption = el("figcaption", el("b", "time/…"), el("span", markup.duration(total)))
    return el("figure", caption, el("ul", *bars, class_="bars"), class_="chart")


def _bar(part: str, spent: float, share: float) -> Html:
    rect = el("rect", width=f"{100 * share:.2f}%", height="100%", rx=2)
    return el(
        "li",
        el("span", part, class_="part"),
        el("svg", rect, class_="bar", aria_hidden="true"),
        el("span", markup.percent(share), class_="n"),
        el("span", markup.duration(spent), class_="n soft"),
    )


def _speed(group: Group) -> Html:
    """Chart interactions per second, seed by seed."""
    lines: list[Line] = []
    for run in group.runs:
        rate = curve(run.timings["interactions"], run.timings["rate"])
        points = room(len(group.runs), SMALL)
        color = group.color + len(lines)
        lines.append(Line(f"seed {run.seed}", thin(rate, points), color))
    return chart(lines, Look("rate", "interactions per second"))


def evaluation(found: list[RunData]) -> PageSection | None:
    """Show `eval.json`: new episodes of the policy, and of a random agent if it was played."""
    rows = []
    for run in found:
        for who in ("policy", "random"):
            result = run.evaluation.get(who)
            if isinstance(result, dict):
                name = run.config.algorithm.upper() if who == "policy" else "random agent"
                mean, *others = _played(result)
                rows.append([name, mean, run.environment, str(run.seed), *others])
    head = [
        "agent",
        "mean",  # near the left edge: on a phone, the rest of the table has to be scrolled to
        "environment",
        "run's seed",
        "std",
        "95 % interval of the mean",
        "range",
        "episodes",
        "normalized",
    ]
    if all(row[-1] == "–" for row in rows):
        head.pop()
        rows = [row[:-1] for row in rows]
    body = table(head, rows, "Evaluation", numeric=(1, *range(3, 9)))
    return PageSection("evaluation", "Evaluation", body) if rows else None


def _played(result: dict[str, Any]) -> list[str]:
    def value(name: str) -> str:
        given = result.get(name)
        known = isinstance(given, int | float)
        return markup.number(float(given)) if known else "–"  # type: ignore[arg-type]

    scaled = "–"
    if "human_normalized" in result:
        scaled = f"{value('human_normalized')} % of human"
    elif "normalized" in result:
        scaled = value("normalized")
    interval = f"{value('low')} to {value('high')}"
    spread = f"{value('min')} to {value('max')}"
    return [value("mean"), value("std"), interval, spread, value("episodes"), scaled]


def films(found: list[RunData]) -> PageSection | None:
    """Embed recorded episodes."""
    figures = [_film(run) for run in found if run.film is not None]
    body = el("div", *figures, class_="films")
    return PageSection("films", "Recorded episodes", body) if figures else None


def _film(run: RunData) -> Html:
    assert run.film is not None
    title = f"{run.config.algorithm.upper()} on {run.environment}, seed {run.seed}"
    data = bytes_of(run.film)
    if data is None or data[4:8] != b"ftyp":
        reason = "is too large to embed" if data is None else "is not an mp4 video"
        return el("p", el("code", str(run.film)), f" {reason}.")
    poster = _poster(data)
    video = el(
        "video",
        src=f"data:video/mp4;base64,{base64.b64encode(data).decode()}",
        poster=f"data:image/png;base64,{base64.b64encode(poster).decode()}" if poster else None,
        controls=True,
        loop=True,
        muted=True,
        playsinline=True,
        preload="auto",
        aria_label=title,
    )
    return el("figure", video, el("figcaption", title))


@functools.lru_cache(maxsize=8)  # `dna watch` makes the page again and again
def _poster(film: bytes) -> bytes | None:
    """Return the picture to show before a film is played; None if it cannot be decoded."""
    try:
        from dna.evaluation.film import poster
    except MissingExtra:
        return None
    return poster(film)


def checkpoints(found: list[RunData]) -> PageSection | None:
    """List the checkpoints of each run."""
    parts = []
    for run in found:
        rows = [
            [
                markup.count(one.interactions),
                markup.number(one.score),
                markup.size(one.size) if one.size is not None else "not readable",
                one.saved,
            ]
            for one in run.checkpoints()
        ]
        if rows:
            label = f"{run.path}: {len(rows)} checkpoints, newest {rows[-1][3]}"
            head = ["interactions", "score", "size", "saved"]
            parts.append(folded(label, table(head, rows, label, numeric=range(3))))
    return PageSection("checkpoints", "Checkpoints", join(parts)) if parts else None


def settings(groups: dict[str, list[Group]]) -> PageSection | None:
    """Show every configuration: its differences from the preset, then all settings."""
    parts = []
    for env, found in groups.items():
        for group in found:
            config = group.runs[0].config
            head = el("h3", f"{group.name} on {env}")
            title = f"All settings, digest {digest(config)}"
            parts.append(join([head, _changes(config), folded(title, _whole(config))]))
    return PageSection("settings", "Settings", join(parts)) if parts else None


def preset_of(config: Config) -> tuple[str, Config] | None:
    """Return (name, configuration) of the preset that `dna train ENV_ID` uses, if any."""
    env_id = config.env.id
    if env_id is None:
        return None
    try:
        preset = for_environment(env_id, config.algorithm)
    except BadInput:
        return None
    return f"{family(env_id)}.{config.algorithm}", preset


def _changes(config: Config) -> Html:
    start = preset_of(config)
    if start is None:
        return Html("")
    name, preset = start
    changed = differences(config, preset)
    if not changed:
        return el("p", "Equal to the preset ", el("code", name), ".", class_="lead")
    rows = [
        [el("code", key), written(ours), written(theirs)]
        for key, (ours, theirs) in changed.items()
    ]
    lead = el("p", "Differs from the preset ", el("code", name), " in:", class_="lead")
    return join([lead, table(["setting", "here", name], rows, f"Differences from {name}")])


def _whole(config: Config) -> Html:
    """Show the phases side by side, then all other settings."""
    tree = json_tree(config)
    columns: dict[str, dict[str, Any]] = {}
    for phase in tree.pop("phases"):
        sgd = phase.pop("sgd")
        columns[phase.pop("name")] = phase | {f"sgd.{key}": value for key, value in sgd.items()}
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    rows = [
        [el("code", key), *(written(c[key]) if key in c else "" for c in columns.values())]
        for key in keys
    ]
    return join([table(["phase", *columns], rows, "Phases"), pairs(_leaves(tree))])


def _leaves(node: Any, path: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    elif node != {}:
        yield path, written(node)


def written(value: Any) -> str:
    """Format a setting: off, 0.001 → 0, comma-separated lists."""
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{value['start']} → {value['end']}"
    if isinstance(value, list | tuple):
        return ", ".join(written(inner) for inner in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def machine(runs: list[RunData]) -> PageSection | None:
    """Show the machines and versions; equal ones are shown once."""
    found: dict[str, tuple[Html, list[RunData]]] = {}
    for run in runs:
        if run.machine:
            text = _machine(run.machine)
            found.setdefault(text, (text, []))[1].append(run)
    parts = []
    for text, same in found.values():
        head = el("h3", ", ".join(str(run.path) for run in same)) if len(found) > 1 else ""
        parts.append(join([head, text]))
    return PageSection("machine", "Machine", join(parts)) if parts else None


def _machine(tree: dict[str, Any]) -> Html:
    rows = [
        ("processor", f"{tree.get('cpu')}, {tree.get('cores')} cores"),
        ("device", str(tree.get("gpu") or tree.get("device"))),
        ("threads", _threads(tree)),
        ("resumes", str(tree.get("resumes", 0))),
        ("exact", _exact(tree)),
        ("compiled", _listed(tree.get("compiled")) or "nothing"),
    ]
    shown = [(name, value) for name, value in rows if "None" not in value]
    return join([pairs(shown), folded("Versions", pairs(_versions(tree)))])


def _threads(tree: dict[str, Any]) -> str:
    """Return how many threads did what, as far as the run recorded it."""
    names = {"threads": "", "torch_threads": "torch ", "env_threads": "env "}
    known = {name: tree[name] for name in names if tree.get(name) is not None}
    return ", ".join(f"{names[name]}{count}" for name, count in known.items()) or "None"


def _exact(tree: dict[str, Any]) -> str:
    """Return whether resuming was exact, and if not, why."""
    why = _listed(tree.get("why_not_exact"))
    known = {True: "yes", False: f"no: {why}" if why else "no"}
    return known.get(tree.get("exact") is True, "") if "exact" in tree else "None"


def _listed(value: Any) -> str:
    return ", ".join(str(one) for one in value) if isinstance(value, list) else ""


def _versions(tree: dict[str, Any]) -> list[tuple[str, str]]:
    packages = tree.get("versions")
    known = packages if isinstance(packages, dict) else {}
    git = tree.get("git")
    rows = [("python", tree.get("python")), ("platform", tree.get("platform")), *known.items()]
    if isinstance(git, dict):
        changed = ", with changes" if git.get("dirty") else ""
        rows.append(("commit", f"{git.get('commit')}{changed}"))
    return [(str(name), str(value)) for name, value in rows if value is not None]
