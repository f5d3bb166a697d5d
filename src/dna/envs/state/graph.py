"""The state of plain Python environments: their object graph as JSON and arrays, and back.

Numbers, text, arrays, containers and numpy's generators are written down; objects are walked
attribute by attribute, functions made at run time cell by cell; what belongs to the program
(functions of a module, classes, members of an Enum) is written down by its name, and must be
there again. Nothing is ever built from a name in a file: a graph is read back *into* objects
made alike. Whatever cannot be written down, such as a window, a C++ world or an object with
memory of its own, makes the environment inexact, and is named.
"""

import json
from collections.abc import Mapping

import numpy as np

from dna.envs.state.graph_reader import Mismatch, Reader
from dna.envs.state.graph_writer import Array, Opaque, Writer

__all__ = ["Mismatch", "Opaque", "load", "opaque", "save"]


def save(root: object) -> dict[str, Array]:
    """Everything that `root` holds, as named arrays; raises `Opaque`."""
    writer = Writer()
    try:
        text = json.dumps(writer.node(root)).encode()
    except RecursionError:
        raise Opaque("something nested that deeply") from None
    except (ValueError, TypeError) as error:
        raise Opaque(f"something ({error})") from error
    return {"graph": np.frombuffer(text, np.uint8).copy(), **writer.arrays}


def load(root: object, state: Mapping[str, Array]) -> None:
    """Put a graph back into an object made like the one it was saved from."""
    try:
        tree = json.loads(state["graph"].tobytes())
        Reader(state).value(tree, root)
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
        raise Mismatch(f"not a graph of these objects ({error})") from error


def opaque(root: object, name: str) -> str | None:
    """Why `root` cannot be saved, or None."""
    try:
        save(root)
    except Opaque as thing:
        return f"{name}: {thing} cannot be saved"
    return None
