"""Use saved policies and run folders: evaluate, record, plot, report, export, import from SB3.

Nothing here trains or changes a run; it reads what `dna.runs` wrote.
"""
