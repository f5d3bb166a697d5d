"""The figures of a measurement as plain JSON values."""

import statistics
from datetime import UTC, datetime
from typing import Any

import torch

from dna.cli.bench.contest import Result, ratios
from dna.runs.reproducibility import describe


def figures(family: str, results: list[Result]) -> dict[str, Any]:
    """Everything measured, with the machine it was measured on."""
    machine = describe(torch.device("cpu"), None)
    # Where the paper gives hours, its first algorithm is what time is compared with.
    base = next((one for one in results if one.case.hours), results[0])
    return {
        "family": family,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {key: machine[key] for key in ("cpu", "cores", "python", "versions", "git")},
        "cases": [
            _case(one, results[0]) | {"time": _ratio(base.rates("ours"), one.rates("ours"))}
            for one in results
        ],
    }


def _case(result: Result, first: Result) -> dict[str, Any]:
    ours, bounds = result.rates("ours"), result.bounds()
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
        "ratios": {name: _ratio(ours, result.rates(name)) for name in peers},
        "beside": {name: _ratio(ours, first.rates(name)) for name in beside},
        "of_limit": _ratio(ours, bounds),
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


def _ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    middle, low, high = ratios(ours, theirs)
    return {"median": middle, "min": low, "max": high}
