"""Appendices F and M: the tuned settings on *easy* Atari, as Rainbow DQN was measured.

The paper has DNA and PPO there; easy PPG is ours, for `--algo`.
"""

from dna.config.presets import tuned
from dna.config.presets.table3_ale import easy

DNA, PPO, PPG = easy(tuned.DNA), easy(tuned.PPO), easy(tuned.PPG)
