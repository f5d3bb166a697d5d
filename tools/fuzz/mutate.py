"""Mutations that keep the structure of an input: JSON, zip and safetensors files, settings."""

import copy
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

#: Texts that `json.dumps` cannot write, by the placeholder that is replaced by them.
RAW = {
    "@1e400@": "1e400",
    "@-1e400@": "-1e400",
    "@digits@": "9" * 400,
    "@many digits@": "9" * 5000,
    "@deep list@": "[" * 300 + "]" * 300,
    "@deep object@": '{"a":' * 300 + "1" + "}" * 300,
    "@too deep@": "[" * 5000 + "]" * 5000,
}
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**32, 2**53 + 1, 2**63, -(2**63), 10**18,
    0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, float("nan"), float("inf"), float("-inf"),
    "", " ", "x", "nan", "1", "../x", "/etc/passwd", "\x00", "\x1b[31m", "\u202e", "\ud800",
    "é" * 300, "os:system", [], {}, [[]], [{}], {"a": 1}, {"": None}, [0], [None], ["a", "a"],
    *RAW,
)  # fmt: skip


def nasty(chance: random.Random) -> Any:
    """Return a value that is probably of another type, size or kind than expected."""
    return copy.deepcopy(chance.choice(NASTY))  # mutated later, it must not contain itself


def dumped(tree: Any) -> bytes:
    """Serialize JSON, with the texts of `RAW` in place of their placeholders."""
    text = json.dumps(tree)
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text.encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a tree with each of its keys."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict | list):
            for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
                yield node, key
                todo.append(value)


def mutate_tree(tree: Any, chance: random.Random) -> Any:
    """Change a few values, keys or elements of a JSON tree."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return nasty(chance)
        node, key = chance.choice(places)
        kind = chance.randrange(7)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[str(nasty(chance))] = node.pop(key)
        elif kind == 2:
            other, place = chance.choice(places)
            node[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(node[key], int | float):
            node[key] = chance.choice((node[key] + 1, -node[key], node[key] * 1000, 0))
        elif kind == 4 and isinstance(node, list):
            node.insert(key, json.loads(json.dumps(node[key])))
        else:
            node[key] = nasty(chance)
    return tree


def mutate_json(data: bytes, chance: random.Random) -> bytes:
    """Mutate a JSON document, or one line of a file of JSON lines."""
    lines = data.split(b"\n")
    whole = _parsed(data)
    if whole is not None:
        return dumped(mutate_tree(whole, chance))
    number = chance.randrange(len(lines))
    tree = _parsed(lines[number])
    if tree is None:
        return data
    lines[number] = dumped(mutate_tree(tree, chance))
    if chance.randrange(4) == 0:
        chance.shuffle(lines)
    return b"\n".join(lines)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def mutate_safetensors(data: bytes, chance: random.Random) -> bytes:
    """Mutate the header of a safetensors file and write its length anew, or the tensors."""
    if len(data) < 8:
        return data
    (length,) = struct.unpack("<Q", data[:8])
    header = _parsed(data[8 : 8 + length]) if length < len(data) else None
    body = bytearray(data[8 + length :])
    if header is None:
        return data
    if chance.randrange(3) == 0 and body:
        start = chance.randrange(len(body)) & ~3
        word = chance.choice((b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\xff\xff"))
        word = chance.choice((word, chance.randbytes(4), bytes(4)))
        body[start : start + len(word)] = word
    elif chance.randrange(3) == 0:
        _relabel(header, chance)
    else:
        header = mutate_tree(header, chance)
    text = dumped(header)
    return struct.pack("<Q", len(text)) + text + bytes(body)


def _relabel(header: Any, chance: random.Random) -> None:
    """Change one tensor's type, shape or name so that its bytes still fit."""
    names = [
        name for name in header if isinstance(header[name], dict) and "shape" in header[name]
    ]
    if not names:
        return
    name = chance.choice(names)
    entry = header[name]
    kind = chance.randrange(4)
    if kind == 0:
        same = {
            "F32": ("I32", "U32"),
            "F64": ("I64", "U64"),
            "I64": ("F64",),
            "U8": ("I8", "BOOL"),
        }
        entry["dtype"] = chance.choice(same.get(entry["dtype"], ("U8",)))
    elif kind == 1 and isinstance(entry["shape"], list):
        entry["shape"] = chance.choice(
            (list(reversed(entry["shape"])), [1, *entry["shape"]], [*entry["shape"], 1])
        )
    elif kind == 2:
        header[chance.choice((name + "x", name.upper(), "env/0/x", "replay/0/obs"))] = (
            header.pop(name)
        )
    else:
        other = header[chance.choice(names)]
        header[name], entry = other, header[name]


def mutate_zip(data: bytes, chance: random.Random) -> bytes:
    """Mutate the members of a zip file, including a zip file in it; checksums stay right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return data
    if not content:
        return data
    name = chance.choice(list(content))
    member = content[name]
    kind = chance.randrange(8)
    if kind == 0:
        del content[name]
    elif kind == 1:
        content[str(nasty(chance)).replace("\ud800", "")[:200]] = content.pop(name)
    elif member[:2] == b"PK":
        content[name] = mutate_zip(member, chance)
    elif name == "data" and kind != 2:
        content[name] = mutate_json(member, chance)
    elif name.endswith("data.pkl") and kind != 2:
        content[name] = mutate_pickle(member, chance)
    else:
        content[name] = mutate_bytes(member, chance)
    return zipped(content, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def zipped(content: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip file with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


#: Instructions of pickles, whole: numbers, texts, marks, memo, calls, globals.
INSTRUCTIONS = (
    b"(", b"t", b"}", b"]", b")", b"N", b"\x88", b"\x89", b"K\x01", b"M\xff\xff",
    b"J\xff\xff\xff\x7f", b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"X\x01\x00\x00\x00a",
    b"q\x00", b"h\x00", b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\x7f", b"Q", b"R", b"b", b"s",
    b"u", b".", b"0", b"1", b"2", b"cos\nsystem\n", b"ctorch\nFloatStorage\n",
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x80\x04",
    b"\x93", b"\x81", b"\x92", b"i", b"o", b"\x82\x01", b"(" * 300, b"F1e400\n", b"I01\n",
)  # fmt: skip


def mutate_pickle(data: bytes, chance: random.Random) -> bytes:
    """Insert, remove, repeat or replace instructions of a pickle program."""
    at = chance.randrange(len(data) + 1)
    size = chance.choice((0, 1, 2, 5, 20))
    kind = chance.randrange(4)
    if kind == 0:
        return data[:at] + chance.choice(INSTRUCTIONS) + data[at + size :]
    if kind == 1:
        return data[:at] + data[at + size :]
    if kind == 2:
        return data[:at] + data[at : at + size] * chance.choice((2, 10, 1000)) + data[at:]
    return mutate_bytes(data, chance)


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Change, cut or insert bytes."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at:at] = chance.randbytes(chance.choice((1, 4)))
        elif kind == 2:
            del changed[at : at + chance.choice((1, 4, 64))]
        else:
            changed[at : at + 1] = chance.choice((b"\x00", b"\xff", b"\x7f", b"9"))
    return bytes(changed)
