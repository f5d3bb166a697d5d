"""What is there of an experiment that is not finished: arms with all games, arms with some.

A run that failed must cost its own point, not the figure: arms are compared over the games that
each of them has, and whatever is missing is named.
"""

from dataclasses import replace

from dna.paper.experiments.plan import seeds_of
from dna.paper.experiments.results import Results


def arms(results: Results, study: str) -> list[str]:
    """Arms with every environment of the study: those that have a score of the benchmark."""
    wanted = results.study(study).world.envs[results.scale]
    names = [arm.name for arm in results.study(study).arms]
    return [name for name in names if all(results.of(study, name, env) for env in wanted)]


def complete(results: Results, study: str) -> Results:
    """The same results as if the study had only its complete arms."""
    keep = set(arms(results, study))
    studies = tuple(
        replace(one, arms=tuple(arm for arm in one.arms if arm.name in keep))
        if one.name == study
        else one
        for one in results.experiment.studies
    )
    return replace(results, experiment=replace(results.experiment, studies=studies))


def environments(results: Results, study: str) -> list[str]:
    """Environments in which any arm has finished a run."""
    every = results.study(study).world.envs[results.scale]
    return [env for env in every if results.of(study, env=env)]


def table(results: Results, study: str, arm: str) -> dict[str, list[float]]:
    """Environment → scores, seed by seed, whatever other arms have."""
    return {
        env: [one.score for one in results.of(study, arm, env) if one.score is not None]
        for env in environments(results, study)
        if results.of(study, arm, env)
    }


def unfinished(results: Results, study: str | None = None) -> str:
    """`not finished: PPG (3 of 15 runs), …`; empty where every run is."""
    done = {(o.run.study, o.run.arm, o.run.env, o.run.seed) for o in results.outcomes}
    wanted: dict[tuple[str, str], list[bool]] = {}
    for one in results.experiment.studies:
        seeds = range(results.limits.seeds or seeds_of(one, results.scale))
        for arm in one.arms if study in (None, one.name) else ():
            wanted[one.name, arm.name] = [
                (one.name, arm.name, env, seed) in done
                for env in one.world.envs[results.scale]
                for seed in seeds
            ]
    several = len({name for name, _ in wanted}) > 1
    words = [
        f"{f'{name}: ' if several else ''}{arm} ({there.count(False)} of {len(there)} runs)"
        for (name, arm), there in wanted.items()
        if not all(there)
    ]
    return f"not finished: {', '.join(words)}" if words else ""
