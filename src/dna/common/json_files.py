"""JSON of bounded size and depth in which no name appears twice: what our files hold."""

import json
from pathlib import Path
from typing import Any

from dna.common.errors import StorageFailure

#: A JSON file of ours is small; a larger one is not ours.
JSON_LIMIT = 16 * 2**20


def parse_json(data: bytes, path: Path) -> Any:
    """Bytes of a JSON file of ours; the path is for the error."""
    if len(data) > JSON_LIMIT:
        raise StorageFailure(f"{path}: larger than it should be")
    try:
        return json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        text = str(error) if isinstance(error, _Twice) else "not JSON"
        raise StorageFailure(f"{path}: {text}") from error


class _Twice(ValueError):
    """A name that an object has twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Twice(f"{twice[:60]!r} is given twice")
    return found
