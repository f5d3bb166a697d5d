"""What λ does to the noise of the gradients (section 6.2, the lower panels of figure 5).

At the weights of figure 2's trained runs, the same rollouts are given returns with one λ after
the other, and the phase that learns from them is measured: σ_π for λ_π, σ_V for λ_V. The paper
trained a run for each λ and measured along the way; here the policy is the same for all. What
is found of a run is kept beside the experiments, so that each of them finds it again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna.algorithm.noise_scale import Estimate, Sizes, pooled
from dna.algorithm.returns import estimate
from dna.common.storage import read_json, write_json
from dna.config.phases import Returns
from dna.paper.experiments.plan import Scale
from dna.paper.experiments.results import Results
from dna.paper.noise_report import one_estimate, opened

LAMBDAS = (0.6, 0.8, 0.9, 0.95, 0.975, 0.9875, 0.99375, 1.0)
#: Phase → its λ; the other stays at .95.
KEYS = {"policy": "lambda_pi", "value": "lambda_v"}
#: Where it is kept, beside the experiments' folders.
KEPT = "lambda_noise"
ROLLOUTS: dict[Scale, int] = {"smoke": 1, "small": 3, "paper": 16}


def measure_lambdas(
    results: Results, folder: Path, told: Callable[[str], None]
) -> dict[str, Any]:
    """Phase → λ → environment → {sigma, b_simple, low, high}."""
    found: dict[str, Any] = {phase: {str(one): {} for one in LAMBDAS} for phase in KEYS}
    for outcome in results.of("noise"):
        env = outcome.run.env
        kept = folder.parent / KEPT / f"{outcome.run.digest}-{results.scale}.json"
        if not kept.is_file():
            told(f"noise against λ: {env}")
            write_json(kept, _readings(_of_run(outcome.folder, results.scale)))
        for phase, by_lambda in read_json(kept).items():
            for value, reading in by_lambda.items():
                found[phase][value][env] = reading
    return found


def _readings(found: dict[tuple[str, float], list[Estimate]]) -> dict[str, Any]:
    """Phase → λ → {sigma, b_simple, low, high} of one run."""
    out: dict[str, Any] = {phase: {} for phase in KEYS}
    for (phase, value), estimates in found.items():
        reading = pooled(estimates)
        low, high = reading.interval
        about = {"sigma": reading.sigma, "b_simple": reading.b_simple}
        out[phase][str(value)] = about | {"low": low, "high": high}
    return out


def _of_run(folder: Path, scale: Scale) -> dict[tuple[str, float], list[Estimate]]:
    found: dict[tuple[str, float], list[Estimate]] = {}
    sizes = Sizes(8, None, 4) if scale == "smoke" else Sizes(32, None, 64)
    with opened(folder) as run:
        gamma = run.config.returns.gamma
        for number in range(ROLLOUTS[scale]):
            rollout = run.collector.collect(run.iteration + number, run.clock)
            for phase in run.config.phases:
                for value in LAMBDAS if phase.name in KEYS else ():
                    given = {"lambda_pi": 0.95, "lambda_v": 0.95} | {KEYS[phase.name]: value}
                    returns = Returns.model_validate({"gamma": gamma} | given)
                    data, _ = estimate(rollout, run.networks, returns)
                    one = one_estimate(run, phase, data, sizes, number)
                    found.setdefault((phase.name, value), []).append(one)
    return found
