"""Commands that play a trained run: `dna eval`, `dna record` and `dna noise`."""

import json
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dna.cli.options import MAX_SEED, AsJson, Run
from dna.cli.progress import counting
from dna.common.errors import BadInput
from dna.common.intervals import METHOD, interval
from dna.common.process import wait_briefly
from dna.config import EnvConfig
from dna.config.environments import ATARI

if TYPE_CHECKING:
    from dna.paper.noise_report import PhaseNoise
    from dna.runs.folder import RunFolder
    from dna.runs.policy import SavedPolicy

Summary = dict[str, Any]
VideoFormat = Literal["mp4", "gif"]
#: Width of a table that is not printed to a terminal: wide enough for whole lines.
PIPE_WIDTH = 10_000

Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed of the episodes")]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Take the most likely action instead of sampling"),
]
AllowImport = Annotated[
    bool, typer.Option("--allow-import", help="Allow the run's module:factory to run its code")
]


def eval_(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, or folders written by --seeds"),
    ],
    episodes: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Complete episodes to play")
    ] = 100,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    random: Annotated[
        bool, typer.Option("--random", help="Also evaluate a uniformly random agent")
    ] = False,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel", min=1, max=4096, help="Parallel episodes; does not affect the scores"
        ),
    ] = 16,
    as_json: AsJson = False,
    allow_import: AllowImport = False,
) -> None:
    """Evaluate policies on new episodes and write RUN/eval.json.

    For several runs, print a table with the mean over the seeds of each configuration.

    Examples:

      dna eval runs/3f2a9c01d4e5 --episodes 100 --random

      dna eval runs/a runs/b runs/c --parallel 32
    """
    from dna.common.storage import write_json
    from dna.evaluation.evaluate import Playing, evaluate, policy_of

    policies = [(folder, policy_of(folder)) for folder in _expand(runs)]
    results = []
    for folder, policy in policies:
        result: Summary = {
            "run": str(folder.path),
            "seed": seed,
            "deterministic": deterministic,
        }
        players = {"policy": policy, "random": None} if random else {"policy": policy}
        for name, player in players.items():
            with counting(f"{folder.path}, {name}, episodes played", episodes) as count:
                played = evaluate(
                    player,
                    policy.env,
                    episodes=episodes,
                    seed=seed,
                    deterministic=deterministic,
                    how=Playing(allow_import, progress=count, parallel=parallel),
                )
            summary: Summary = dict(played.summary())
            result[name] = summary | benchmark_score(policy.env, summary["mean"])
        write_json(folder.path / "eval.json", result)
        results.append(result)
        if len(policies) == 1 and not as_json:
            for name in players:
                typer.echo(describe(name, result[name]))
    if len(policies) > 1:
        _print_several(policies, results, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(results[0]))


def _expand(paths: list[Path]) -> list["RunFolder"]:
    """Return the runs; a folder that is not a run stands for the seeds inside it."""
    from dna.agents.hub import find
    from dna.runs.folder import RunFolder

    found: list[RunFolder] = []
    for path in paths:
        seeds: list[Path] = []
        if not (path / "config.json").is_file():
            seeds = sorted(path.glob("seed*/config.json"), key=lambda p: (len(p.parts[-2]), p))
        found += [RunFolder.of(file.parent) for file in seeds] or [find(path)]
    return list({folder.path.resolve(): folder for folder in found}.values())


def benchmark_score(env: EnvConfig, mean: float) -> dict[str, float]:
    """Return the mean on its benchmark's scale; empty except for 57 Atari games and Procgen."""
    if env.procgen is not None and env.procgen.distribution != "hard":
        return {}
    if (env.id or "").startswith(ATARI) and env.atari is None:
        return {}  # Gymnasium's plain environment follows other rules
    from dna.envs.benchmark_scores import normalized

    return normalized(env.id or "", mean)


def describe(name: str, summary: Summary) -> str:
    """Return one line about the evaluation of one player."""
    scaled = _on_scale(summary)
    around = ""
    if summary["low"] is not None:
        around = f" (95 % interval of the mean {summary['low']:.2f} to {summary['high']:.2f})"
    return (
        f"{name:>6}: {summary['mean']:.2f} ± {summary['std']:.2f}"
        f"{', ' + scaled if scaled else ''} over {summary['episodes']} episodes{around}, "
        f"median {summary['median']:.2f}, IQM {summary['iqm']:.2f}"
    )


def _on_scale(summary: Summary) -> str:
    if "human_normalized" in summary:
        return f"human-normalized {summary['human_normalized']:.1f} %"
    return f"normalized {summary['normalized']:.3f}" if "normalized" in summary else ""


def _print_several(
    policies: list[tuple["RunFolder", "SavedPolicy"]], results: list[Summary], *, as_json: bool
) -> None:
    """Print the runs and, for each configuration, the mean over its runs."""
    groups: dict[str, list[int]] = {}
    for i, (folder, _) in enumerate(policies):
        groups.setdefault(folder.read()[0].model_dump_json(), []).append(i)
    means = []
    for members in groups.values():
        _, policy = policies[members[0]]
        means.append(_about(policy) | _mean_over_runs([results[i] for i in members]))
    if as_json:
        typer.echo(json.dumps({"runs": results, "configurations": means}))
        return
    table = Table(box=None, pad_edge=False)
    head = ("run", "agent", "seed", "mean", "95 % interval", "median", "IQM", "normalized")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for (folder, policy), result in zip(policies, results, strict=True):
        seed = str(policy.about.get("seed", "–"))
        row = [str(folder.path), _name(_about(policy)), seed, *_cells(result["policy"])]
        table.add_row(*map(Text, row))
        if "random" in result:
            row = [str(folder.path), "random agent", seed, *_cells(result["random"])]
            table.add_row(*map(Text, row))
    for mean in means:
        if len(mean["runs"]) > 1:
            row = [f"mean of {len(mean['runs'])} runs", _name(mean), "", *_cells(mean)]
            table.add_row(*map(Text, row), style="bold")
    console = Console()
    (console if console.is_terminal else Console(width=PIPE_WIDTH)).print(table)


def _mean_over_runs(results: list[Summary]) -> Summary:
    """Average the means of runs; the Student interval is over runs, not over episodes."""
    players = [result["policy"] for result in results]
    low, high = interval([player["mean"] for player in players]) or (None, None)
    summary: Summary = {
        "runs": [result["run"] for result in results],
        "low": low,
        "high": high,
        "interval": f"{METHOD}, over runs",
    }
    for key in ("mean", "median", "iqm", "human_normalized", "normalized"):
        if key in players[0]:
            summary[key] = fmean(player[key] for player in players)
    return summary


def _about(policy: "SavedPolicy") -> Summary:
    return {"algorithm": policy.about.get("algorithm"), "env": policy.env.id}


def _name(about: Summary) -> str:
    return f"{(about['algorithm'] or '').upper()} {about['env'] or ''}".strip()


def _cells(summary: Summary) -> list[str]:
    around = "–"
    if summary["low"] is not None:
        around = f"{summary['low']:.2f} to {summary['high']:.2f}"
    return [
        f"{summary['mean']:.2f}",
        around,
        f"{summary['median']:.2f}",
        f"{summary['iqm']:.2f}",
        _on_scale(summary).rpartition("normalized ")[2] or "–",
    ]


def record(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="Video file [RUN/episode.mp4]")] = None,
    form: Annotated[
        VideoFormat | None,
        typer.Option("--format", help="Video format [that of --out, otherwise mp4]"),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Only the rendered frames, without the panel")
    ] = False,
    best_of: Annotated[
        int, typer.Option(min=1, max=10_000, help="Play this many episodes, record the best")
    ] = 1,
    frames: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Stop recording after this many steps")
    ] = 5000,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    allow_import: AllowImport = False,
) -> None:
    """Record a video of an episode with a panel of values and action probabilities.

    The panel shows the score, V_π and V_V over the last 200 steps, and the probabilities of the
    actions.

    Example: dna record runs/3f2a9c01d4e5 --best-of 3 --out breakout.gif
    """
    from dna.agents.hub import find
    from dna.common.storage import write
    from dna.evaluation.evaluate import Playing, policy_of
    from dna.evaluation.film import Film, best_episode, default_video, gif, mp4

    folder = find(run)
    kind = _video_format(out, form)
    target = out or default_video(folder, kind)
    policy = policy_of(folder)
    with counting("episodes to choose from", best_of) as count:
        how = Playing(allow_import, None, count)
        episode = best_episode(policy, best_of, seed=seed, deterministic=deterministic, how=how)
    note = f"best of {best_of}" if best_of > 1 else ""
    film = Film(policy, seed, episode, deterministic, allow_import, frames, plain, note)
    write(target, (mp4 if kind == "mp4" else gif)(film.frames(), film.fps))
    score = f"score {film.score:.2f}"
    if note:
        score += f", the {note}"
    if not film.whole:
        score += f" so far: the video was cut after {frames:,} steps"
    typer.echo(f"{target}: {film.pictures} frames, {score}")


def _video_format(out: Path | None, form: VideoFormat | None) -> VideoFormat:
    """Return the format that --format or the file's extension names; they must agree."""
    extension = None if out is None else out.suffix
    if extension not in (None, ".mp4", ".gif") or (
        extension and form and extension != f".{form}"
    ):
        raise BadInput(f"--out {out}: must end in .{form or 'mp4 or .gif'}")
    if form is not None:
        return form
    return "gif" if extension == ".gif" else "mp4"


def noise(
    run: Run,
    rollouts: Annotated[
        int, typer.Option(min=1, max=10_000, help="Rollouts to measure on")
    ] = 4,
    samples: Annotated[int, typer.Option(min=2, help="Small mini-batches per rollout")] = 64,
    b_small: Annotated[int, typer.Option(min=1, help="Size of a small mini-batch")] = 32,
    as_json: AsJson = False,
) -> None:
    """Measure the gradient noise scale of every phase of a run and suggest mini-batch sizes.

    B_simple is the mini-batch size at which the noise is as large as the gradient; σ is its
    square root. Rollouts are collected with the newest checkpoint; the run folder stays as it
    is.

    Examples:

      dna noise runs/3f2a9c01d4e5

      dna noise runs/3f2a9c01d4e5 --rollouts 16 --json
    """
    wait_briefly()  # sets variables that are read when torch is loaded
    from dna.algorithm.noise_scale import Sizes
    from dna.paper.noise_report import check_sizes, noise_of
    from dna.runs.folder import RunFolder

    config, _ = RunFolder.of(run).read()
    sizes = Sizes(b_small, None, samples)
    check_sizes(config, sizes)
    with counting(f"measuring {run}", rollouts) as count:
        found = noise_of(run, rollouts, sizes, told=count)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found]))
    else:
        _print_noise(found)


def _print_noise(found: list["PhaseNoise"]) -> None:
    table = Table(box=None, header_style="bold")
    for name in ("phase", "σ", "B_simple", "95 %", "mini-batch", ""):
        table.add_column(name, justify="left" if name in ("phase", "") else "right")
    for one in found:
        sigma = "?" if one.sigma is None else f"{one.sigma:,.1f}"
        simple = "?" if one.b_simple is None else f"{one.b_simple:,.0f}"
        high = "∞" if one.high is None else f"{one.high:,.0f}"
        span = f"{one.low:,.0f} – {high}"
        table.add_row(one.phase, sigma, simple, span, f"{one.minibatch:,}", one.advice)
    Console().print(table)
