"""Public name of `dna.runs.callbacks`."""

from dna.runs.callbacks import Callbacks, Running, State

__all__ = ["Callbacks", "Running", "State"]
