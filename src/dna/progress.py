"""What a checkpoint's `state.json` says of a run's progress, checked before it is believed."""

from typing import Any

#: Name → what it must be.
KINDS = {
    "iteration": int,
    "interactions": int,
    "lengths": dict,
    "resumes": int,
    "inexact": list,
    "setting": dict,
}


def progress_of(state: Any) -> dict[str, Any]:
    """The numbers and lists of a run's progress; KeyError or TypeError if it is not one."""
    progress = {name: _of_kind(state[name], kind) for name, kind in KINDS.items()}
    progress["lengths"] = _lengths(state["lengths"])
    return progress


def _of_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _lengths(value: Any) -> Any:
    """Of the logs: without them, all would be cut to nothing."""
    known = isinstance(value, dict) and "metrics.jsonl" in value
    if not known or not all(isinstance(n, int) and n >= 0 for n in value.values()):
        raise TypeError("lengths of the logs")
    return value
