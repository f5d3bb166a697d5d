"""What is done with saved policies and finished runs: play, film, plot, report, export.

Nothing here trains.
"""
