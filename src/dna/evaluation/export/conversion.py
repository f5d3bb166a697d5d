"""ONNX's libraries, loaded when needed and kept quiet: convert, describe, run."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.common.errors import BadInput, MissingExtra

Array = npt.NDArray[Any]
#: Of ONNX; onnxruntime 1.20 knows it.
OPSET = 20


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter's notices are about torch's own affairs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def check_installed() -> None:
    """One line that names the extra, before any work is done."""
    try:
        with quiet():
            import onnx
            import onnxruntime
            import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("ONNX", "export") from None
    # Its log is about graphics cards that are not there.
    onnxruntime.set_default_logger_severity(3)
    assert onnx.__version__


def convert(
    module: nn.Module,
    example: list[Tensor],
    names: tuple[list[str], list[str]],
    properties: Mapping[str, str],
) -> bytes:
    """An ONNX file of a module that takes a list of tensors; the batch is of any size."""
    check_installed()
    import onnx

    batch = torch.export.Dim("batch", min=1, max=2**20)
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=names[0],
                output_names=names[1],
                dynamic_shapes=([{0: batch} for _ in example],),
                external_data=False,
                verbose=False,
            )
            assert program is not None
            model: Any = program.model_proto
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"this network cannot be written as ONNX ({reason})") from error
    for node in model.graph.node:  # where in our source each came from
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.helper.set_model_props(model, dict(properties))
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


class Runtime:
    """An ONNX file behind onnxruntime, on one thread."""

    def __init__(self, data: bytes) -> None:
        check_installed()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise BadInput(f"onnxruntime does not take this file ({reason})") from error

    @property
    def properties(self) -> dict[str, str]:
        """What was written into the file beside the network."""
        found: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        return found

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by its name."""
        names = [output.name for output in self.session.get_outputs()]
        outputs = self.session.run(names, dict(feed))
        return {name: np.asarray(x) for name, x in zip(names, outputs, strict=True)}
