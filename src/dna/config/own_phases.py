"""Phases from outside the package, known to configurations once they are registered.

The set of phases is closed otherwise, so that a file can be validated without running foreign
code: a run with a phase of yours is read where that phase was registered before.
"""

from typing import Annotated, Any, TypeVar, Union

from pydantic import Field

from dna.common.errors import BadInput
from dna.config.overrides import BUILT_IN, PHASES
from dna.config.phases import Frozen
from dna.config.run import Config

P = TypeVar("P", bound=Frozen)
#: What the engine asks of a phase's settings.
FIELDS = ("kind", "name", "trains", "reads", "every", "sgd")


def register_phase(model: type[P]) -> type[P]:
    """Make a phase's settings model known; also as a decorator.

    Its two functions are registered with `dna.phases.freeze` and `dna.phases.loss`. A model of
    the same kind takes the place of one that was registered before (a cell that runs again).
    """
    missing = [name for name in FIELDS if name not in model.model_fields]
    if missing:
        raise BadInput(f"{model.__name__}: a phase needs the field '{missing[0]}'")
    kind = model.model_fields["kind"].default
    if not isinstance(kind, str) or kind in BUILT_IN:
        raise BadInput(f"{model.__name__}: kind {kind!r} is taken or no text; choose another")
    PHASES[kind] = model
    rebuild()
    return model


def rebuild() -> None:
    """Let configurations have the phases that are known now."""
    members: Any = tuple(PHASES.values())
    union: Any = Annotated[Union[members], Field(discriminator="kind")]  # noqa: UP007
    Config.model_fields["phases"].annotation = tuple[union, ...]
    Config.model_rebuild(force=True)
