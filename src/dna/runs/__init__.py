"""One run on disk: training, checkpoints, retention, metrics, saved policies.

Many runs at once are in `dna.runs.sweeps`; tools for finished runs are in `dna.evaluation`.
"""
