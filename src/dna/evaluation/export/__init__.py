"""Export a policy to ONNX: one file that acts without this package and without torch.

`onnx_policy` is the module that becomes the file (normalizer, network, post-processing),
`contract` describes its inputs and outputs, `onnx_file` converts it, compares it with torch and
runs it.
"""
