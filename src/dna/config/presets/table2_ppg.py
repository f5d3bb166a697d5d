"""Table 2 (tab:ppg_hps): PPG on Atari. All other settings are those of DNA in table 1.

The table is silent on the auxiliary mini-batch; the authors' runs had 512, DNA's for
distillation. Both λ are table 1's .95, not the .8 that section 6 found for DNA.
"""

from typing import Any

from dna.config import SGD, Auxiliary, Config, Policy, Value
from dna.config.overrides import tweak
from dna.config.presets import table1_atari

_REST: dict[str, Any] = {name: value for name, value in table1_atari.DNA if name != "phases"}

#: Column PPG: epochs of Cobbe et al. 2021. Its replay holds 32 rollouts: 3.7 GB of frames.
PPG = Config(
    phases=(
        Policy(sgd=SGD(epochs=1, minibatch=2048), epsilon=0.2, entropy_bonus=0.01),
        Value(sgd=SGD(epochs=1, minibatch=512)),
        Auxiliary(every=32, sgd=SGD(epochs=6, minibatch=512), beta=1.0),
    ),
    **_REST,
)

#: Column PPG (tuned): closer to DNA's epochs.
PPG_TUNED = tweak(PPG, **{"policy.sgd.epochs": 2, "aux.sgd.epochs": 2})
