"""Appendix J (figure 12): what the policy network is distilled towards, and nothing at all.

Run between the two sweeps of section 6: epochs are tuned (2, 1, 2), both λ still .95.
"""

from dna.config.overrides import tweak, without
from dna.config.presets import table1_atari

VALUE = tweak(table1_atari.DNA, **{"value.sgd.epochs": 1})
PROJECTION = tweak(VALUE, **{"distil.target": "projection"})
FEATURES = tweak(VALUE, **{"distil.target": "features"})
NONE = without(VALUE, "distil")
