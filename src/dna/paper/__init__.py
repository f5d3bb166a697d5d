"""The paper's printed numbers, experiments, figures and claims.

This package plans and starts runs and reads finished ones; no lower package imports it.
"""
