"""What must be said wherever results are shown: a proxy, fewer of something, runs that lack."""

from dna.experiments.finished import unfinished
from dna.experiments.published import own_games
from dna.experiments.results import Results
from dna.experiments.worlds import minatar_game
from dna.toy_data import SCALES

PROXY = "proxy: MinAtar, not the paper's games"
OTHER = "other environments than the paper's"


def caption(results: Results, study: str | None = None) -> str:
    """One line on a study, or on the whole experiment; empty for all of it at full size."""
    names = [one.name for one in results.experiment.studies]
    chosen = [study] if study in names else names
    parts = ["smoke scale: shows that the wiring holds"] if results.scale == "smoke" else []
    for name in chosen:
        envs = results.study(name).world.envs[results.scale]
        other = PROXY if any(map(minatar_game, envs)) else OTHER
        played = own_games(results.study(name), results.scale)
        parts.append(results.shortened_in(name) if played else other)
    if PROXY in parts:
        parts.append(results.limits.words)
    if "toy" in results.experiment.extra:
        parts.append(_toy(results))
    parts.append(unfinished(results, study if study in names else None))
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _toy(results: Results) -> str:
    ours, theirs = SCALES[results.scale], SCALES["paper"]
    sizes = (
        (ours.seeds, theirs.seeds, "seeds"),
        (len(ours.sigmas), len(theirs.sigmas), "values of σ₁"),
        (ours.width, theirs.width, "units of width"),
    )
    parts = [f"{few} of {many} {what}" for few, many, what in sizes if few < many]
    return f"shortened: {', '.join(parts)}" if parts else ""
