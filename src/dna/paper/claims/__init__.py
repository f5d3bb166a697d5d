"""The paper's testable claims and how a verdict on each of them is reached.

`table` lists every claim with its kind and parameters, `verdicts` has the rule that decides.
"""
