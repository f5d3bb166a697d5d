"""Show a run, several runs or an experiment as one HTML page, offline or live.

`data` and `experiment` read folders, `curves` and `facts` make the sections, `charts` draws,
`markup` writes HTML, `page` assembles the document, and `live` serves it while runs train.
"""
