"""Atari as the paper plays it, in worker processes with exact snapshots.

Worker processes load this package, so nothing in it imports torch.
"""
