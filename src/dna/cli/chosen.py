"""The configuration that a command's words come to."""

import os
from pathlib import Path

from dna.common.errors import BadInput, StorageFailure
from dna.config import Config
from dna.config.overrides import parse_overrides, tweak
from dna.config.presets import for_environment


def settings_of(
    env_id: str,
    start: tuple[str | None, str | None, str | None],
    file: Path | None,
    interactions: int | None,
    overrides: list[str],
) -> Config:
    """Preset and profile, or a file; then overrides; validated as a whole."""
    changes = parse_overrides(overrides)
    if "env.id" in changes:
        raise BadInput("env.id: is the first word of the command; leave it out here")
    if interactions is not None:
        if "interactions" in changes:
            raise BadInput("interactions: given both as an option and as key=value")
        changes["interactions"] = interactions
    if file is not None:
        if any(start):
            options = "--algo, --preset and --profile"
            raise BadInput(f"--config: holds all settings; leave out {options}")
        from dna.runs.folder import read_config

        try:
            # The user's own file may be a link; those of a run never are.
            base = tweak(read_config(Path(os.path.realpath(file)))[0], **{"env.id": env_id})
        except StorageFailure as error:
            raise BadInput(f"--config {error}") from None
    else:
        base = for_environment(env_id, *start)
    return tweak(base, **changes)
