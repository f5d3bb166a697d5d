"""The paper's printed numbers, experiments, figures and claims.

It plans and starts runs and reads finished ones; nothing below this package imports it.
"""
