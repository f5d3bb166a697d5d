"""One run on disk: training, checkpoints, retention, metrics, saved policies.

Many runs at once are in `dna.runs.sweeps`; looking at finished runs is `dna.evaluation`.
"""
