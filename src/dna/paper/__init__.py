"""The paper's numbers, experiments, figures and claims.

It reads finished runs and starts new ones; nothing below this room imports it.
"""
