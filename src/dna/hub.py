"""Public name of `dna.agents.hub`."""

from dna.agents.hub import find, load

__all__ = ["find", "load"]
