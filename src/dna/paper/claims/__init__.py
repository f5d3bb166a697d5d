"""The paper's falsifiable claims and how a verdict on each is reached.

A claim is judged on the runs of an experiment; which runs those are is `dna.paper.experiments`.
"""
