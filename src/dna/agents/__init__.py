"""DNA, PPO and PPG as Python objects, and folders for the Hugging Face Hub.

A thin layer over `dna.runs` and `dna.evaluation`: it may adapt arguments and results, but
trains and plays only through them.
"""
