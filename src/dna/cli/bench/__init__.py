"""`dna bench`: interactions per second, compared with peers and with the machine's limit.

Contestants are processes. In every round each of them does its unit of work once, one after
the other with nothing else running; the first round is a warm-up and is dropped. Ratios are
taken within a round, so that noise of the machine affects both sides alike; reported are their
median, smallest and largest. `dna.cli.bench.serve` is this package's contestant.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dna.cli.options import AsJson
from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.messages import nearest, quoted
from dna.common.process import WAITING
from dna.config import SGD, Config, EnvConfig, Joint, Network, Policy, Returns, Value
from dna.config.overrides import tweak
from dna.config.presets import preset

FAMILIES = ("atari", "mujoco", "minatar", "procgen")
PEERS = ("sb3", "cleanrl-style", "sbx", "torchrl", "tianshou", "skrl")
#: Those that do the same work as SB3 on vectors and on MinAtar.
_LIBRARIES = ("torchrl", "tianshou", "skrl")
#: Scripts and interpreter of the peers, installed by `make peers` in a checkout.
PEER_SCRIPTS = Path("benchmarks/peers")
PEER_PYTHON = Path(".venv-peers/bin/python")


def bench(
    family: Annotated[
        Literal["atari", "mujoco", "minatar", "procgen"], typer.Argument(help="What to measure")
    ],
    against: Annotated[
        str,
        typer.Option(
            metavar="PEER,...",
            help=f"Libraries to compare with: {', '.join(PEERS)}; see `make peers`",
        ),
    ] = "",
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Number of rounds")] = 5,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure interactions per second, time per part, and the percentage of the limit reached.

    The limit is that of the machine: the algorithm's floating-point operations at the speed of
    a large matrix product, plus stepping the environments. Peers do the same work in turns. Run
    nothing else meanwhile.

    Examples:

      dna bench minatar

      dna bench atari --against sb3,cleanrl-style --repeats 5 --out atari.json
    """
    names = _peer_names(against, family)
    from dna.common.storage import write_json

    with Console(stderr=True).status(f"{family}: starting") as status:
        results = contest(family, names, repeats, lambda text: status.update(escape(text)))
    found = figures(family, results)
    if out is not None:
        write_json(out, found)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print_figures(found)


def _peer_names(text: str, family: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    able = {peer for case in cases(family) for peer in case.peers}
    for name in names:
        if name not in PEERS:
            hint = nearest(name, list(PEERS)) or f"; known: {', '.join(PEERS)}"
            raise BadInput(f"--against {quoted(name)}: no such peer{hint}")
        if name not in able:
            known = ", ".join(sorted(able))
            raise BadInput(f"--against {name}: cannot run {family}; available: {known}")
    return names


# ── what is measured ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """A configuration to measure."""

    name: str
    config: Config
    iterations: int  # in one turn, which takes a few seconds
    peers: tuple[str, ...] = ()  # libraries that can do the same work
    hours: float | None = None  # GPU hours in the paper (table 5)
    beside: tuple[str, ...] = ()  # peers, on the first case's work, to compare this case with


def cases(family: str) -> list[Case]:
    """Return the cases of a family; peers are compared on the first one."""
    return {
        "atari": _atari,
        "mujoco": _mujoco,
        "minatar": _minatar,
        "procgen": _procgen,
    }[family]()


def _brief(name: str, env_id: str, **changes: object) -> Config:
    """Return a preset for this environment, with a short warm-up."""
    config = tweak(preset(name), **{"env.id": env_id})
    if config.warm_up is not None:
        config = tweak(config, **{"warm_up.low": 0, "warm_up.high": 8})
    return tweak(config, **changes)


def _atari() -> list[Case]:
    game = "ALE/Breakout-v5"
    acting = {"returns.values": "acting"}
    # With a replay of one short rollout, the auxiliary phase costs the same per interaction.
    ppg = _brief("tuned.ppg", game, **{"aux.every": 1, "horizon": 32})
    return [
        # Like the peers: V is computed in the forward pass that chooses the actions.
        Case("PPO (1x)", _brief("tuned.ppo_1x", game, **acting), 1, ("sb3", "cleanrl-style")),
        Case("DNA", _brief("tuned.dna", game), 1, hours=4.0),
        Case("PPO (2x)", _brief("tuned.ppo", game), 1, hours=3.0),
        Case("PPG", ppg, 1, hours=4.5),
        Case("PPO (orig)", _brief("table1.ppo_orig", game), 4, hours=7.5),
    ]


def _mujoco() -> list[Case]:
    task = "HalfCheetah-v5"
    sgd = SGD(epochs=10, minibatch=64, learning_rate=3e-4, max_gradient_norm=0.5)
    # SB3's PPO has separate networks for π and V: the policy and value phases do the same.
    two = Config(
        env=EnvConfig(id=task),
        phases=(Policy(sgd=sgd, entropy_bonus=0.0), Value(sgd=sgd)),
        returns=Returns(gamma=0.99, lambda_pi=0.95, lambda_v=0.95),
        horizon=2048,
        agents=1,
        interactions=1_000_000,
        network=Network(encoder="mlp", width=64, depth=2, activation="tanh"),
        normalize_observation=None,
        normalize_reward=None,
        warm_up=None,
    )
    one = two.model_copy(update={"phases": (Joint(sgd=sgd, entropy_bonus=0.0),)})
    one = tweak(one, **{"returns.values": "acting"})
    return [
        Case("PPO, two networks", two, 8, ("sb3", "sbx", *_LIBRARIES)),
        Case("PPO, one network", one, 8, ("cleanrl-style",)),
        Case("PPO (table 6)", _brief("mujoco.ppo", task), 8),
        Case(
            "DNA (table 6)", _brief("mujoco.dna", task), 4, beside=("sb3", "sbx", *_LIBRARIES)
        ),
    ]


def _minatar() -> list[Case]:
    game = "MinAtar/Breakout-v1"
    ppo = _brief("minatar.ppo", game, **{"returns.values": "acting"})
    ppg = _brief("minatar.ppg", game, **{"aux.every": 1})
    return [
        Case("PPO", ppo, 8, ("sb3", *_LIBRARIES)),
        Case("DNA", _brief("minatar.dna", game), 8),
        Case("PPG", ppg, 8),
    ]


def _procgen() -> list[Case]:
    game = "procgen/coinrun"
    # An eighth of the paper's horizon; with all of it a turn would take minutes.
    return [
        Case("PPO", _brief("procgen.ppo", game, horizon=32), 1, ("cleanrl-style",)),
        Case("DNA", _brief("procgen.dna", game, horizon=32), 1),
    ]


def work_of(case: Case, family: str, threads: int) -> dict[str, object]:
    """Describe the work of a case to a peer's script."""
    sgd = case.config.phases[0].sgd
    return {
        "family": family,
        "env": case.config.env.id,
        "agents": case.config.agents,
        "horizon": case.config.horizon,
        "epochs": sgd.epochs,
        "minibatch": sgd.minibatch,
        "iterations": case.iterations,
        "threads": threads,
    }


# ── the contest ───────────────────────────────────────────────────────────────────────────


class Contestant:
    """A process that does one unit of work per line written to it and answers in JSON."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str]) -> None:
        self.name = name
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            env=os.environ | env,
        )

    def ask(self, request: str = "go") -> dict[str, Any]:
        """Take one turn and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.stderr.seek(0)
            lines = self.stderr.read().decode(errors="replace").strip().splitlines()
            raise EnvironmentFailure(
                f"{self.name}: ended ({lines[-1] if lines else 'without a message'})"
            )
        turn: dict[str, Any] = json.loads(answer)
        return turn

    def close(self) -> None:
        """Close its input, which ends it; kill it if it does not end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.stderr.close()


@dataclass
class Result:
    """Turns of one case: ours, the peers' and the machine's limit."""

    case: Case
    turns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    limits: list[dict[str, Any]] = field(default_factory=list)

    def rates(self, contestant: str) -> list[float]:
        """Return interactions per second, turn by turn."""
        return [turn["interactions"] / turn["seconds"] for turn in self.turns[contestant]]

    def bounds(self) -> list[float]:
        """Return the interactions per second that the machine allows, round by round."""
        return [
            1 / (sum(one["operations"].values()) / one["matmul"] + 1 / one["env"])
            for one in self.limits
        ]

    def split(self) -> dict[str, float]:
        """Return the share of time of each of our parts, over all turns."""
        total: dict[str, float] = {}
        for turn in self.turns["ours"]:
            for part, seconds in turn["split"].items():
                total[part] = total.get(part, 0.0) + seconds
        spent = sum(turn["seconds"] for turn in self.turns["ours"])
        total["other"] = spent - sum(total.values())
        return {part: seconds / spent for part, seconds in total.items()}


def contest(
    family: str,
    against: Sequence[str],
    repeats: int,
    report: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Measure all cases of a family in turns, so that cases can be compared as well."""
    if against and not (PEER_PYTHON.exists() and PEER_SCRIPTS.is_dir()):
        raise BadInput(
            f"--against {','.join(against)}: peers are measured in a checkout of the project, "
            "where `make peers` installs them"
        )
    results = [Result(case) for case in cases(family)]
    contestants: list[dict[str, Contestant]] = []
    try:
        for index, result in enumerate(results):
            report(f"{result.case.name}: starting")
            contestants.append(_start(family, index, result.case, against))
        for number in range(repeats + 1):
            for result, of_case in zip(results, contestants, strict=True):
                _play_round(result, of_case, number, f"round {number} of {repeats}", report)
    finally:
        for of_case in contestants:
            for contestant in of_case.values():
                contestant.close()
    return results


def _start(
    family: str, index: int, case: Case, against: Sequence[str]
) -> dict[str, Contestant]:
    ours = [sys.executable, "-m", "dna.cli.bench.serve", family, str(index)]
    waiting = {name: os.environ.get(name, value) for name, value in WAITING.items()}
    found = {"ours": Contestant("ours", ours, waiting)}
    for name in case.peers:
        if name in against:
            found[name] = _start_peer(name, case, family)
    return found


def _start_peer(name: str, case: Case, family: str) -> Contestant:
    small = family in ("mujoco", "minatar")  # small networks are fastest on one thread
    work = json.dumps(work_of(case, family, 1 if small else 0))
    script = PEER_SCRIPTS / f"run_{name.replace('-', '_')}.py"
    packages = next(PEER_PYTHON.parent.parent.glob("lib/python*/site-packages"), Path())
    qt = {"LD_LIBRARY_PATH": str((packages / "PyQt5/Qt5/lib").absolute())}
    return Contestant(name, [str(PEER_PYTHON), str(script), work], qt)


def _play_round(
    result: Result,
    contestants: dict[str, Contestant],
    number: int,
    title: str,
    report: Callable[[str], None],
) -> None:
    for name, contestant in contestants.items():
        report(f"{title}: {result.case.name}, {name}")
        turn = contestant.ask()
        if number > 0:  # round 0 is the warm-up
            result.turns.setdefault(name, []).append(turn)
    report(f"{title}: {result.case.name}, limit")
    limit = contestants["ours"].ask("limit")
    if number > 0:
        result.limits.append(limit)


# ── the figures ───────────────────────────────────────────────────────────────────────────


def ratios(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return median, smallest and largest of the ratios within a round."""
    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def figures(family: str, results: list[Result]) -> dict[str, Any]:
    """Return everything measured, and the machine, as plain JSON values."""
    import torch

    from dna.runs.reproducibility import describe

    machine = describe(torch.device("cpu"), None)
    # Times are relative to the first algorithm for which the paper states hours, if any.
    base = next((one for one in results if one.case.hours), results[0])
    return {
        "family": family,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {key: machine[key] for key in ("cpu", "cores", "python", "versions", "git")},
        "cases": [
            _case_figures(one, results[0])
            | {"time": ratios(base.rates("ours"), one.rates("ours"))}
            for one in results
        ],
    }


def _case_figures(result: Result, first: Result) -> dict[str, Any]:
    ours = result.rates("ours")
    bounds = result.bounds()
    peers = [name for name in result.turns if name != "ours"]
    beside = [name for name in result.case.beside if name in first.turns]
    limits = result.limits
    return {
        "name": result.case.name,
        "env": result.case.config.env.id,
        "agents": result.case.config.agents,
        "horizon": result.case.config.horizon,
        "paper_hours": result.case.hours,
        "rates": {name: _spread(result.rates(name)) for name in result.turns},
        "ratios": {name: ratios(ours, result.rates(name)) for name in peers},
        "beside": {name: ratios(ours, first.rates(name)) for name in beside},
        "of_limit": ratios(ours, bounds),
        "limit": {
            "rate": statistics.median(bounds),
            "matmul": statistics.median(one["matmul"] for one in limits),
            "env": statistics.median(one["env"] for one in limits),
            "operations": limits[0]["operations"],
        },
        "split": result.split(),
        "memory": max(turn["memory"] for turn in result.turns["ours"]),
        "workers": max(turn.get("workers", 0) for turn in result.turns["ours"]),
    }


def _spread(values: list[float]) -> dict[str, float | int]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "turns": len(values),
    }


def _print_figures(found: dict[str, Any]) -> None:
    console = Console()
    table = Table(box=None, header_style="bold")
    for name in ("case", "library", "interactions/s", "speed-up", "% of limit", "memory"):
        table.add_column(name, justify="left" if name in ("case", "library") else "right")
    for case in found["cases"]:
        for library, rate in case["rates"].items():
            first = library == "ours"
            ratio = case["ratios"].get(library)
            table.add_row(
                case["name"] if first else "",
                library,
                f"{rate['median']:,.0f} ({rate['min']:,.0f}-{rate['max']:,.0f})",
                "" if ratio is None else f"{ratio['median']:.2f} ×",
                f"{100 * case['of_limit']['median']:.0f} %" if first else "",
                f"{(case['memory'] + case['workers']) / 1e9:.2f} GB" if first else "",
            )
    console.print(table)
    lines = []
    for case in found["cases"]:
        parts = sorted(case["split"].items(), key=lambda item: -item[1])
        shares = ", ".join(f"{part} {share:.0%}" for part, share in parts if share >= 0.005)
        lines.append(f"{case['name']}: {shares}")
    for case in found["cases"]:
        if case["paper_hours"]:
            lines.append(
                f"{case['name']}: {case['time']['median']:.2f} × the time of DNA; in the paper "
                f"{case['paper_hours'] / 4:.2f}"
            )
        for library, ratio in case["beside"].items():
            lines.append(
                f"{case['name']}: {ratio['median']:.2f} × as fast as the PPO of {library}"
            )
    for line in lines:
        console.print(line, markup=False, highlight=False)
    limits = [case["limit"] for case in found["cases"]]
    gflops = statistics.median(limit["matmul"] for limit in limits) / 1e9
    env = statistics.median(limit["env"] for limit in limits)
    console.print(f"limit: matrix product {gflops:,.0f} GFLOP/s, environments {env:,.0f}/s")
