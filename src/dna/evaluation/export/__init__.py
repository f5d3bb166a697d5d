"""A policy for those who have neither us nor torch: ONNX, with all that acting needs inside.

`acting` is what is exported, `contract` says what to feed it, `conversion` is where ONNX's
own libraries are, `trial` compares the file with torch, `player` plays it.
"""
