"""Atari as the paper plays it: games in worker processes, with exact snapshots.

Worker processes load this package, so nothing in it imports torch.
"""
