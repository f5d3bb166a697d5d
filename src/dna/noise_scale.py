"""Public name of `dna.algorithm.noise_scale`."""

from dna.algorithm.noise_scale import Estimate, NoiseScale, pooled, unbiased

__all__ = ["Estimate", "NoiseScale", "pooled", "unbiased"]
