"""`dna eval`, `dna record` and `dna plot`: looking at what a run learned."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dna.cli.display import counting
from dna.config import EnvConfig
from dna.errors import BadInput
from dna.scores import normalized
from dna.worlds import ATARI

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder")]
Episodes = Annotated[int, typer.Option(min=1, max=1_000_000, help="Whole episodes to play")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the evaluation")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The most likely action, not a sample")
]
AllowImport = Annotated[bool, typer.Option("--allow-import", help="The run's ENV_ID runs code")]


def eval_(
    run: Run,
    episodes: Episodes = 100,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    random: Annotated[bool, typer.Option("--random", help="A random agent beside it")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line")] = False,
    allow_import: AllowImport = False,
) -> None:
    """Score a run's policy on fresh episodes; writes RUN/eval.json.

    Example: dna eval runs/3f2a9c01d4e5 --episodes 100 --random
    """
    from dna.evaluate import Playing, evaluate, policy_of
    from dna.folder import RunFolder
    from dna.storage import write_json

    folder = RunFolder.of(run)
    policy = policy_of(folder)
    result: dict[str, object] = {"run": str(run), "seed": seed, "deterministic": deterministic}
    players = {"policy": policy} | ({"random": None} if random else {})
    for name, player in players.items():
        with counting(f"{name}: episodes played", episodes) as told:
            played = evaluate(
                player,
                policy.env,
                episodes=episodes,
                seed=seed,
                deterministic=deterministic,
                how=Playing(allow_import=allow_import, progress=told),
            )
        summary = played.summary()
        result[name] = summary = summary | worth(policy.env, summary["mean"])
        if not as_json:
            typer.echo(_sentence(name, summary))
    if as_json:
        typer.echo(json.dumps(result))
    write_json(folder.path / "eval.json", result)


def worth(env: EnvConfig, mean: float) -> dict[str, float]:
    """The mean on its benchmark's scale; nothing beside Atari's 57 games and hard Procgen."""
    if env.procgen is not None and env.procgen.distribution != "hard":
        return {}
    if (env.id or "").startswith(ATARI) and env.atari is None:
        return {}  # Gymnasium's plain environment: other rules, another score
    return normalized(env.id or "", mean)


def _sentence(name: str, summary: dict[str, float | int]) -> str:
    scaled = ""
    if "human_normalized" in summary:
        scaled = f", human-normalized {summary['human_normalized']:.1f} %"
    elif "normalized" in summary:
        scaled = f", normalized {summary['normalized']:.3f}"
    return (
        f"{name:>6}: {summary['mean']:.2f} ± {summary['std']:.2f}{scaled} over "
        f"{summary['episodes']} episodes "
        f"(95 % interval of the mean {summary['low']:.2f} to {summary['high']:.2f})"
    )


def record_(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The video [RUN/episode.mp4]")] = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    allow_import: AllowImport = False,
) -> None:
    """Record one episode as mp4.

    Example: dna record runs/3f2a9c01d4e5 --out breakout.mp4
    """
    from dna.evaluate import default_video, policy_of, record
    from dna.folder import RunFolder
    from dna.media import mp4
    from dna.storage import write

    folder = RunFolder.of(run)
    target = out or default_video(folder)
    if target.suffix != ".mp4":
        raise BadInput(f"--out {target}: must end in .mp4")
    film = record(
        policy_of(folder), seed=seed, deterministic=deterministic, allow_import=allow_import
    )
    write(target, mp4(film.frames, film.fps))
    score = f"score {film.score:.2f}" + ("" if film.whole else " so far: the film was cut")
    typer.echo(f"{target}: {len(film.frames)} frames, {score}")


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs")],
    out: Annotated[Path | None, typer.Option(help="The picture [RUN/curve.png]")] = None,
) -> None:
    """Draw learning curves; several seeds of an algorithm become a mean with a band.

    Example: dna plot runs/a runs/b runs/c --out curves.png
    """
    from dna.folder import RunFolder
    from dna.plots import default_plot, learning_curves, random_score
    from dna.storage import write

    folders = [RunFolder.of(run) for run in runs]
    target = out or default_plot(folders[0])
    write(target, learning_curves(folders, random_score(folders[0])))
    typer.echo(str(target))


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command("eval")(eval_)
    app.command("record")(record_)
    app.command()(plot)
