"""The paper's algorithm: returns, phases and losses, the engine, rollouts, the noise scale.

Nothing here may read or write files, handle signals or know which command started it.
"""
