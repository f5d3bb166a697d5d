"""What λ does to the noise of the gradients (section 6.2, the lower panels of figure 5).

At the weights of figure 2's trained runs, the same rollouts are given returns with one λ after
the other, and the phase that learns from them is measured: σ_π for λ_π, σ_V for λ_V. The paper
trained a run for each λ and measured along the way; here the policy is the same for all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna.estimate import estimate
from dna.experiments.plan import Scale
from dna.experiments.results import Results
from dna.gradients import Sizes
from dna.noise_report import one_estimate, opened
from dna.noise_scale import Estimate, pooled
from dna.settings import Returns

LAMBDAS = (0.6, 0.8, 0.9, 0.95, 0.975, 0.9875, 0.99375, 1.0)
#: Phase → its λ; the other stays at .95.
KEYS = {"policy": "lambda_pi", "value": "lambda_v"}
ROLLOUTS: dict[Scale, int] = {"smoke": 1, "small": 3, "paper": 16}


def measure_lambdas(
    results: Results, folder: Path, told: Callable[[str], None]
) -> dict[str, Any]:
    """Phase → λ → environment → {sigma, b_simple, low, high}."""
    found: dict[str, Any] = {phase: {str(one): {} for one in LAMBDAS} for phase in KEYS}
    for outcome in results.of("noise"):
        env = outcome.run.env
        told(f"noise against λ: {env}")
        for (phase, value), estimates in _of_run(outcome.folder, results.scale).items():
            reading = pooled(estimates)
            low, high = reading.interval
            found[phase][str(value)][env] = {
                "sigma": reading.sigma,
                "b_simple": reading.b_simple,
                "low": low,
                "high": high,
            }
    return found


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
