"""A run, several runs or an experiment as one HTML page: offline, or live while they train.

`markup` escapes, `formats` writes numbers, `series` thins and averages, `svg` draws, `data`
and `experiment` read folders, `curves` and `facts` are the page's sections, `page` puts them
together, and `live` serves the page on this machine only.
"""
