"""Environments that keep their state in unusual ways, for `torture.zoo`."""

from torture.patterns import (  # noqa: F401
    alike,
    arrays,
    callables,
    containers,
    generators,
    objects,
    outside,
    places,
    program,
    wrapped,
)
from torture.patterns.base import PATTERNS

__all__ = ["PATTERNS"]
