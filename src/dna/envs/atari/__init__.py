"""Atari set up as in the paper: games in worker processes, with exact snapshots.

Worker processes load this package, so nothing in it imports torch.
"""
