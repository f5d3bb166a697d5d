"""Public name of `dna.callbacks`."""

from dna.runs.callbacks import Callbacks, Running, State

__all__ = ["Callbacks", "Running", "State"]
