"""Appendix C (figure 7, table 4): tuned DNA with one change each.

The fifth run of the table, PPO (basic), is `tuned.PPO_BASIC`.
"""

from dna.config.overrides import tweak, without
from dna.config.presets import tuned

NO_DISTIL = without(tuned.DNA, "distil")
#: "All three training objectives set to 512": value and distillation are there already.
MB512 = tweak(tuned.DNA, **{"policy.sgd.minibatch": 512})
LAMBDA_EQUAL = tweak(tuned.DNA, **{"returns.lambda_pi": 0.95})
