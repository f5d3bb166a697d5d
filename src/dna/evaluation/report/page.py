"""Assemble the page: one HTML file that makes no network requests.

Its Content-Security-Policy forbids all requests, and all scripts and styles except those whose
hashes it names, so that nothing smuggled in through a file's text would run.
"""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dna.common.errors import BadInput
from dna.evaluation.report import curves, experiment, facts, markup
from dna.evaluation.report.data import Group, RunData, by_environment, find_runs
from dna.evaluation.report.experiment import ExperimentFolder, Judge, is_experiment
from dna.evaluation.report.markup import Html, PageSection, el, join


@dataclass(frozen=True)
class PagePart:
    """A part of the page that the live view can replace; its hash detects changes."""

    id: str
    html: Html

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the content."""
        return hashlib.sha256(self.html.encode()).hexdigest()[:12]

    @property
    def written(self) -> Html:
        """The markup with its hash as an attribute, for the script of the live page."""
        name, _, rest = self.html.partition(" ")
        return Html(f'{name} data-hash="{self.hash}" {rest}')


def page_of(paths: list[Path], judge: Judge | None = None) -> str:
    """Return the document of an experiment's folder, or of run folders.

    `judge` returns the verdicts of an experiment; None: those in its folder.
    """
    experiments = [path for path in paths if is_experiment(path)]
    if not experiments:
        folders = [run for path in paths for run in find_runs(path)]
        unique = {folder.resolve(): folder for folder in folders}
        return document(*run_parts([RunData.of(folder) for folder in unique.values()]))
    if len(paths) > 1:
        raise BadInput(f"{experiments[0]}: an experiment has its own page; pass it alone")
    return document(*experiment_parts(ExperimentFolder.of(paths[0], judge)))


def run_parts(runs: list[RunData]) -> tuple[str, list[PagePart]]:
    """Return (title, parts) of the page of runs."""
    groups = by_environment(runs)
    title = title_of(groups)
    sections = [
        curves.learning(groups),
        facts.evaluation(runs),
        facts.films(runs),
        curves.phases(groups),
        curves.noise(groups),
        facts.time(groups),
        facts.settings(groups),
        facts.machine(runs),
        facts.runs(runs),
        facts.checkpoints(runs),
    ]
    return title, _parts(_run_head(title, groups, runs), sections)


def experiment_parts(found: ExperimentFolder) -> tuple[str, list[PagePart]]:
    """Return (title, parts) of the page of an experiment."""
    runs = list(found.runs.values())
    sections = [*experiment.sections(found), facts.machine(runs)]
    return found.about.title, _parts(_experiment_head(found), sections)


def _parts(head: Html, sections: list[PageSection | None]) -> list[PagePart]:
    shown = [section for section in sections if section is not None]
    links = (el("li", el("a", one.title, href=f"#{one.id}")) for one in shown)
    nav = el("nav", el("ul", *links), id="nav", aria_label="Sections")
    return [
        PagePart("head", head),
        PagePart("nav", nav),
        *(_part(section) for section in shown),
    ]


def _part(section: PageSection) -> PagePart:
    title = f"{section.id}-title"
    head = el("h2", section.title, id=title)
    return PagePart(
        section.id, el("section", head, section.body, id=section.id, aria_labelledby=title)
    )


def title_of(groups: dict[str, list[Group]]) -> str:
    """Return a title such as `DNA and PPO on CartPole-v1`."""
    names = list(dict.fromkeys(g.name for found in groups.values() for g in found))
    algorithms = _enumerated(names, "algorithms and settings")
    return f"{algorithms} on {_enumerated(list(groups), 'environments')}"


def _enumerated(names: list[str], plural: str) -> str:
    if len(names) > 3:
        return f"{len(names)} {plural}"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def state_of(runs: list[RunData]) -> str:
    """Return the state of several runs: training if one is, finished if all are."""
    states = {run.state for run in runs}
    if "training" in states:
        return "training"
    return "finished" if states == {"finished"} else "not running"


def _run_head(title: str, groups: dict[str, list[Group]], runs: list[RunData]) -> Html:
    tiles = [_score_tile(g) for found in groups.values() for g in found][:6]
    done = sum(run.interactions for run in runs)
    total = sum(run.config.interactions for run in runs)
    episodes = sum(run.metrics.last("episodes") or 0 for run in runs)
    seconds = sum(run.seconds for run in runs)
    each = f"of {markup.short(total)}" if done < total else f"in {_plural(len(runs), 'run')}"
    tiles += [
        _tile("interactions", markup.short(done), each),
        _tile("episodes", markup.short(episodes), "finished"),
        _tile("time", markup.duration(seconds), "of training"),
        _tile("speed", _speed(runs), "interactions per second"),
    ]
    state = state_of(runs)
    bar = ""
    if state != "finished":
        share = min(done / total, 1.0)
        label = f"{markup.percent(share)} done{_left(runs)}"
        progress = el("progress", value=f"{share:.4f}", max=1, aria_label=label)
        bar = el("p", progress, el("span", label))
    heading = el("div", el("h1", title), facts.state_chip(state), class_="title")
    return el("header", heading, bar, el("div", *tiles, class_="tiles"), id="head")


def _speed(runs: list[RunData]) -> str:
    rates = [rate for run in runs if (rate := run.rate) is not None]
    return markup.short(sum(rates) / len(rates)) if rates else "–"


def _left(runs: list[RunData]) -> str:
    """Return the time that running runs still need at their current speed."""
    times = [
        (run.config.interactions - run.interactions) / rate
        for run in runs
        if run.state == "training" and (rate := run.rate)
    ]
    return f", about {markup.duration(max(times))} left" if times and max(times) > 0 else ""


def _score_tile(group: Group) -> Html:
    mean, error = group.mean_score
    around = "" if error is None else f" ± {markup.number(error, 2)}"
    seeds = _plural(len(group.runs), "seed")
    return _tile(f"score of {group.name}", markup.number(mean) + around, seeds)


def _tile(name: str, value: str, note: str) -> Html:
    return el("div", el("p", name), el("strong", value), el("p", note), class_="tile")


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _experiment_head(found: ExperimentFolder) -> Html:
    about = found.about
    chips = [el("span", f"scale: {about.scale}", class_="chip")] if about.scale else []
    if about.proxy:
        chips.append(el("span", "proxy: not the paper's games", class_="chip proxy"))
    elif "shortened" in about.caption:
        chips.append(el("span", "shortened", class_="chip proxy"))
    if about.failed:
        failed = f"{_plural(len(about.failed), 'run')} failed"
        chips.append(el("span", failed, class_="chip not-held"))
    name = f"{about.name} {about.alias}".strip()
    covers = f", covers {', '.join(about.covers)}" if about.covers else ""
    runs = {one.folder for one in about.runs}  # two studies may share one
    gone = len(runs) - len(found.runs)
    lost = f", {_plural(gone, 'folder')} of them deleted" if gone else ""
    missing = f", {about.missing} not finished" if about.missing else ""
    some = f"; {_plural(len(runs), 'run')}{missing}{lost}" if runs or missing else ""
    note = f"Experiment {name}{covers}{some}."
    heading = el("div", el("h1", about.title), *chips, class_="title")
    caption = el("p", about.caption, class_="caption") if about.caption else ""
    return el("header", heading, caption, el("p", note, class_="lead"), id="head")


def document(title: str, parts: list[PagePart], *, live: bool = False) -> str:
    """Return the whole HTML document."""
    style = _resource("style.css")
    scripts = [_resource("script.js"), *([_resource("live.js")] if live else [])]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {_sha(style)}",
            f"script-src {' '.join(_sha(script) for script in scripts)}",
            "img-src data:",
            "media-src data:",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        Html(f"<style>{style}</style>"),
    )
    status = el("p", id="status", role="status", class_="status") if live else ""
    main = el("main", join(part.written for part in parts), id="page")
    end = el("footer", "Written by ppo-dna. This page makes no network requests.")
    code = Html("".join(f"<script>{script}</script>" for script in scripts))
    body = el("body", status, main, end, code)
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _resource(name: str) -> str:
    return files("dna.evaluation.report").joinpath(name).read_text(encoding="utf-8")


def _sha(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
