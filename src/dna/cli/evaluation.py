"""`dna eval`: scores of saved policies on fresh episodes, of one run or of many."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dna.cli.display import counting
from dna.cli.standings import Summary, scaled_words, show
from dna.config import EnvConfig
from dna.config.environments import ATARI
from dna.envs.benchmark_scores import normalized

if TYPE_CHECKING:
    from dna.evaluation.evaluate import Playing
    from dna.runs.folder import RunFolder
    from dna.runs.policy import SavedPolicy

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, or one that holds its seeds"),
]
Episodes = Annotated[int, typer.Option(min=1, max=1_000_000, help="Whole episodes to play")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the episodes")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The most likely action, not a sample")
]
AllowImport = Annotated[bool, typer.Option("--allow-import", help="The run's ENV_ID runs code")]
Parallel = Annotated[
    int,
    typer.Option("--parallel", min=1, max=4096, help="Episodes side by side; changes no score"),
]


def eval_(
    runs: Runs,
    episodes: Episodes = 100,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    random: Annotated[bool, typer.Option("--random", help="A random agent beside it")] = False,
    parallel: Parallel = 16,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line")] = False,
    allow_import: AllowImport = False,
) -> None:
    """Score policies on fresh episodes; writes RUN/eval.json.

    Of several runs it prints a table, and the mean over the seeds of each configuration.

    Examples:

      dna eval runs/3f2a9c01d4e5 --episodes 100 --random

      dna eval runs/a runs/b runs/c --parallel 32
    """
    from dna.evaluation.evaluate import Playing, policy_of

    def how(told: Callable[[int], None]) -> Playing:
        return Playing(allow_import, progress=told, parallel=parallel)

    policies = [(folder, policy_of(folder)) for folder in expand(runs)]
    asked: Summary = {"episodes": episodes, "seed": seed, "deterministic": deterministic}
    single = len(policies) == 1
    results = []
    for folder, policy in policies:
        players = {"policy": policy} | ({"random": None} if random else {})
        result = _play(folder, policy.env, players, asked, how)
        results.append(result)
        for name in players if single and not as_json else ():
            typer.echo(_sentence(name, result[name]))
    if not single:
        show(policies, results, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(results[0]))


def _play(
    folder: "RunFolder",
    env: EnvConfig,
    players: dict[str, "SavedPolicy | None"],
    asked: Summary,
    how: "Callable[[Callable[[int], None]], Playing]",
) -> Summary:
    """Play, and write what came out beside the run."""
    from dna.common.storage import write_json
    from dna.evaluation.evaluate import evaluate

    result = {"run": str(folder.path)} | {k: v for k, v in asked.items() if k != "episodes"}
    for name, player in players.items():
        with counting(f"{folder.path}, {name}: episodes played", asked["episodes"]) as told:
            played = evaluate(player, env, **asked, how=how(told))
        summary: Summary = dict(played.summary())
        result[name] = summary | worth(env, summary["mean"])
    write_json(folder.path / "eval.json", result)
    return result


def expand(paths: list[Path]) -> list["RunFolder"]:
    """Runs as given; a folder that is none stands for the seeds in it."""
    from dna.agents.hub import find
    from dna.runs.folder import RunFolder

    found: list[RunFolder] = []
    for path in paths:
        inner = sorted(path.glob("seed*/config.json"), key=lambda p: (len(p.parts[-2]), p))
        many = inner if not (path / "config.json").is_file() else []
        found += [RunFolder.of(file.parent) for file in many] or [find(path)]
    return list({folder.path.resolve(): folder for folder in found}.values())


def worth(env: EnvConfig, mean: float) -> dict[str, float]:
    """The mean on its benchmark's scale; nothing beside Atari's 57 games and hard Procgen."""
    if env.procgen is not None and env.procgen.distribution != "hard":
        return {}
    if (env.id or "").startswith(ATARI) and env.atari is None:
        return {}  # Gymnasium's plain environment: other rules, another score
    return normalized(env.id or "", mean)


def _sentence(name: str, summary: Summary) -> str:
    scaled = scaled_words(summary)
    around = ""
    if summary["low"] is not None:
        around = f" (95 % interval of the mean {summary['low']:.2f} to {summary['high']:.2f})"
    return (
        f"{name:>6}: {summary['mean']:.2f} ± {summary['std']:.2f}"
        f"{', ' + scaled if scaled else ''} over {summary['episodes']} episodes{around}, "
        f"median {summary['median']:.2f}, IQM {summary['iqm']:.2f}"
    )


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command("eval")(eval_)
