"""The paper: returns, phases and their losses, the engine, rollouts and the noise scale.

Nothing here reads or writes files, handles signals or knows which command started it.
"""
