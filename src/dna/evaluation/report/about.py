"""The page's sections on how runs were made: settings beside their preset, and machines."""

from collections.abc import Iterable
from typing import Any

from dna.common.errors import BadInput
from dna.config import Config, json_tree
from dna.config.overrides import differences, digest
from dna.config.presets import family, for_environment
from dna.evaluation.report.curves import Section
from dna.evaluation.report.data import RunData
from dna.evaluation.report.groups import Group
from dna.evaluation.report.markup import Html, el, folded, join, pairs, table


def settings(groups: dict[str, list[Group]]) -> Section | None:
    """Every configuration: what differs from its preset, then all of it."""
    parts = []
    for env, found in groups.items():
        for group in found:
            config = group.runs[0].config
            head = el("h3", f"{group.name} on {env}")
            title = f"All settings, digest {digest(config)}"
            parts.append(join([head, _changes(config), folded(title, _whole(config))]))
    return Section("settings", "Settings", join(parts)) if parts else None


def preset_of(config: Config) -> tuple[str, Config] | None:
    """(name, configuration) of what `dna train ENV_ID --algo …` starts from, if any."""
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
        return el("p", "Exactly the preset ", el("code", name), ".", class_="lead")
    rows = [
        [el("code", key), written(ours), written(theirs)]
        for key, (ours, theirs) in changed.items()
    ]
    lead = el("p", "Differs from the preset ", el("code", name), " in:", class_="lead")
    return join([lead, table(["setting", "here", name], rows, f"Differences from {name}")])


def _whole(config: Config) -> Html:
    """Phases beside each other, then the rest section by section."""
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
    """A setting as people read it: off, 0.001 → 0, joined lists."""
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{value['start']} → {value['end']}"
    if isinstance(value, list | tuple):
        return ", ".join(written(inner) for inner in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def machine(runs: list[RunData]) -> Section | None:
    """What the runs were made with; equal machines are shown once."""
    found: dict[str, tuple[Html, list[RunData]]] = {}
    for run in runs:
        if run.machine:
            text = _machine(run.machine)
            found.setdefault(text, (text, []))[1].append(run)
    parts = []
    for text, same in found.values():
        head = el("h3", ", ".join(str(run.path) for run in same)) if len(found) > 1 else ""
        parts.append(join([head, text]))
    return Section("machine", "Machine", join(parts)) if parts else None


def _machine(tree: dict[str, Any]) -> Html:
    rows = [
        ("processor", f"{tree.get('cpu')}, {tree.get('cores')} cores"),
        ("device", str(tree.get("gpu") or tree.get("device"))),
        ("threads", f"torch {tree.get('torch_threads')}, env {tree.get('env_threads')}"),
        ("resumes", str(tree.get("resumes", 0))),
        ("exact", _exact(tree)),
        ("compiled", _listed(tree.get("compiled")) or "nothing"),
    ]
    shown = [(name, value) for name, value in rows if "None" not in value]
    return join([pairs(shown), folded("Versions", pairs(_versions(tree)))])


def _exact(tree: dict[str, Any]) -> str:
    """Whether the run, resumed or not, is the one that was never interrupted."""
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
