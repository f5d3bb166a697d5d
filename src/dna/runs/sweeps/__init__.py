"""Many runs: grids, searches, and the pools or clusters of processes that run them.

A sweep's state is the folders of its runs and a study file; nothing else has to survive.
"""
