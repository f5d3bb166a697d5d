"""DNA, PPO and PPG as Python objects, and the folders that are shared on a hub.

A thin layer over `dna.runs`: for the same configuration and seed it trains the same run.
"""
