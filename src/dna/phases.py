"""Public name of `dna.algorithm.phases`, for phases written outside the package."""

from dna.algorithm.phases import (
    Metrics,
    clipped_surrogate,
    freeze,
    is_mean_over_rows,
    loss,
    mean,
    policy_loss,
    scheduled,
    squared_error,
)

__all__ = [
    "Metrics",
    "clipped_surrogate",
    "freeze",
    "is_mean_over_rows",
    "loss",
    "mean",
    "policy_loss",
    "scheduled",
    "squared_error",
]
