"""Descriptions of all settings, read from the models: for the command line and the docs.

python -m dna.config.describe > docs/settings.md
"""

import ast
import inspect
import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dna.config.phases import PHASES, Frozen, Linear
from dna.config.run import Config

_TYPES = {int: "integer", float: "number", str: "text"}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
#: Upper bounds from here on only catch typos and are not shown.
UNLIMITED = 10**9
_HEAD = """\
# Settings

Every setting by its dotted path, as in `dna train ENV key=value`, `tweak(config, **{key: v})` \
and `config.json`. `dna show --help-settings` prints the same list. This page is generated: \
`python -m dna.config.describe > docs/settings.md`.

"Default" is the default of the setting itself. A run starts from the preset of its \
environment, which may differ: `dna list presets` names the presets, `dna show PRESET` prints \
all values of one. Keys of a phase begin with the phase's name. null switches an optional \
section off; setting a key inside switches it on with its defaults."""


class Setting(NamedTuple):
    """One setting as a user sees it."""

    path: str
    values: str
    default: str
    description: str


class SettingsSection(NamedTuple):
    """The settings of one model: the run's own, those inside `env`, a kind of phase, …"""

    title: str
    description: str
    settings: list[Setting]


def settings() -> list[Setting]:
    """Return every setting that can be changed: those of a run, then each kind of phase."""
    return [setting for section in sections() for setting in section.settings]


def sections() -> list[SettingsSection]:
    """Return the same settings in groups, each with what it is about."""
    found = [SettingsSection("Run", _about(Config), list(_fields(Config)))]
    for path, model in _inner(Config):
        found.append(SettingsSection(path, _about(model), list(_fields(model, path))))
    for kind, model in PHASES.items():
        name = str(model.model_fields["name"].default)
        rows = list(_fields(model, name))
        for path, inner in _inner(model, name):
            rows += _fields(inner, path)
        found.append(SettingsSection(f"Phase {kind}", _about(model), rows))
    return found


def description(model: type[BaseModel], field: str) -> str:
    """Return the string below a field, in the model or in the class it is inherited from."""
    for base in model.__mro__:
        if issubclass(base, Frozen) and field in _docstrings(base):
            return _docstrings(base)[field]
    return ""


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string below each field of a class.

    Pydantic can read them too (`use_attribute_docstrings`), but parses the source at import.
    """
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, TypeError):  # a class without source, such as one typed into a shell
        return {}
    found = {}
    if isinstance(tree, ast.ClassDef):
        for field, text in pairwise(tree.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def markdown() -> str:
    """Return docs/settings.md: a table for every section."""
    lines = [_HEAD]
    for section in sections():
        lines += ["", f"## {section.title}", "", section.description, ""]
        lines += ["| setting | values | default | meaning |", "|---|---|---|---|"]
        for row in section.settings:
            cells = [f"`{row.path}`", row.values, f"`{row.default}`", row.description]
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _about(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """The fields of one model that can be set, without those inside other models."""
    for name, field in model.model_fields.items():
        values = _values(field.annotation, field.metadata)
        if values and not _is_fixed(field.annotation):
            yield Setting(
                _join(prefix, name), values, _default(field), description(model, name)
            )


def _inner(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Dotted path and type of every model inside a model, in order."""
    for name, field in model.model_fields.items():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                path = _join(prefix, name)
                yield path, part
                yield from _inner(part, path)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _is_fixed(annotation: Any) -> bool:
    """Whether a field has one possible value, as the `kind` of a phase."""
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "on" if isinstance(value, BaseModel) else json.dumps(value)


def _values(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Possible values in words: `integer ≥ 1`, `"kl", "logit_mse"`; "" for a section."""
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Annotated:
        return _values(parts[0], parts[1:])
    if origin is Literal:
        return ", ".join(json.dumps(choice) for choice in parts)
    if origin in (Union, UnionType):
        return " or ".join(_values(part) or "section" for part in parts)
    if origin is tuple:
        return "list of phases" if Ellipsis in parts else "two integers"
    if origin is dict:
        return "keys and values"
    if annotation is NoneType:
        return "null"
    if annotation is Linear:
        return '{"start": …, "end": …}'
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return ""
    return _TYPES.get(annotation, str(annotation)) + _range(dict(_bounds(metadata)))


def _bounds(metadata: Iterable[Any]) -> Iterator[tuple[str, float]]:
    """The constraints of a field: ("ge", 0), ("lt", 1)."""
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _bounds(item.metadata)
        for key in _SIGNS:
            bound = getattr(item, key, None)
            if bound is not None and bound < UNLIMITED:
                yield key, bound


def _range(bounds: dict[str, float]) -> str:
    if bounds.keys() == {"ge", "le"}:
        return f" {bounds['ge']:,} to {bounds['le']:,}"
    return "".join(f" {_SIGNS[key]} {bound:,}" for key, bound in bounds.items())


if __name__ == "__main__":
    print(markdown(), end="")
