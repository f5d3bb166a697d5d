"""What the results on Atari used: table 1 after the tuning of section 6 and appendix I.

`dna train ALE/…` starts here. The main comparison (figure 6) is DNA, PPO and PPG; the other
variants of PPO are appendix G's (figure 10), and PPO (basic) is the ablation's (table 4).
PPO (orig) of figure 10 is table 1's.
"""

from dna.config.overrides import tweak
from dna.config.presets import table1_atari, table2_ppg

#: Sections 6.1 and 6.2: E_π, E_V, E_D = 2, 1, 2 and λ_π = .8, λ_V = .95.
DNA = tweak(table1_atari.DNA, **{"value.sgd.epochs": 1, "returns.lambda_pi": 0.8})

#: Appendix I: one epoch, λ = .95. Encoder with twice the channels: PPO (2x).
PPO = tweak(table1_atari.PPO, **{"joint.sgd.epochs": 1})

#: Table 2, column PPG, *not* PPG (tuned): appendix G says that figure 6 has these epochs.
PPG = table2_ppg.PPG

# Appendix G, one change each.
PPO_E2 = tweak(PPO, **{"joint.sgd.epochs": 2})
PPO_LAMBDA = tweak(PPO, **{"returns.lambda_pi": 0.8})
PPO_1X = tweak(PPO, **{"network.channels": 1})

#: Appendix C: "DNA with all novel components turned off", hence DNA's two policy epochs.
PPO_BASIC = tweak(table1_atari.PPO, **{"network.channels": 1, "joint.sgd.minibatch": 512})
