"""What must be said wherever results are shown: a proxy, fewer of something, runs that lack."""

from dna.config import Config, Linear
from dna.paper.experiments.finished import unfinished
from dna.paper.experiments.published import own_games
from dna.paper.experiments.results import MUJOCO, Results
from dna.paper.experiments.sizes import configure
from dna.paper.experiments.worlds import SOLVED, minatar_game
from dna.paper.toy import SCALES, settings_of

PROXY = "proxy: MinAtar, not the paper's games"
OTHER = "other environments than the paper's"
ANNEALED = "what is annealed, is annealed over the shortened length"


def caption(results: Results, study: str | None = None) -> str:
    """One line on a study, or on the whole experiment; empty for all of it at full size."""
    names = [one.name for one in results.experiment.studies]
    chosen = [study] if study in names else names
    parts = ["smoke scale: shows that the wiring holds"] if results.scale == "smoke" else []
    short = _shortened(results, chosen)
    for name in chosen:
        envs = results.study(name).world.envs[results.scale]
        other = PROXY if any(map(minatar_game, envs)) else OTHER
        played = own_games(results.study(name), results.scale)
        parts.append(short[name] if played else other)
        parts.append(MUJOCO if set(envs) & set(SOLVED) else "")
        parts.append(ANNEALED if played and _annealed(results, name) else "")
        if results.scale == "small" and PROXY in parts:
            parts += [arm.proxy_note for arm in results.study(name).arms]
    if PROXY in parts:
        parts.append(results.limits.words)
    if "toy" in results.experiment.extra:
        parts.append(_toy(results))
    parts.append(unfinished(results, study if study in names else None))
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _shortened(results: Results, names: list[str]) -> dict[str, str]:
    """Study → what the paper had more of, with the study's name where they differ."""
    found = {name: results.shortened_in(name) for name in names}
    apart = len({words for words in found.values() if words}) > 1
    return {
        name: f"{name} {words}" if apart and words else words for name, words in found.items()
    }


def _annealed(results: Results, name: str) -> bool:
    """Whether runs are shorter than the paper's and a schedule ends with them."""
    study = results.study(name)
    length = results.limits.interactions or study.world.interactions[results.scale]
    env = study.world.envs[results.scale][0]
    return length < study.world.interactions["paper"] and any(
        _has_schedule(configure(arm, env, results.scale, length)) for arm in study.arms
    )


def _has_schedule(config: Config) -> bool:
    settings = [one for phase in config.phases for _, one in (*phase, *phase.sgd)]
    return any(isinstance(one, Linear) for one in settings)


def _toy(results: Results) -> str:
    ours, theirs = settings_of(results.scale, results.limits.seeds), SCALES["paper"]
    sizes = (
        (ours.seeds, theirs.seeds, "seeds"),
        (len(ours.sigmas), len(theirs.sigmas), "values of σ₁"),
        (ours.width, theirs.width, "units of width"),
    )
    parts = [f"{few} of {many} {what}" for few, many, what in sizes if few < many]
    return f"shortened: {', '.join(parts)}" if parts else ""
