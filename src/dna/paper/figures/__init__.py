"""The paper's figures drawn from our results, as PNG bytes; the caller writes them.

`layouts` has a function for each figure, `panels` the parts that they share.
"""
