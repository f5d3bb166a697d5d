"""Environments by id: Gymnasium's, Atari's, MinAtar's or Procgen's, or `module:factory`."""

import importlib
import sys
from pathlib import Path
from typing import Any

import gymnasium

from dna.common.errors import BadInput, MissingExtra
from dna.common.messages import nearest, quoted
from dna.config import EnvConfig
from dna.config.environments import ATARI, PROCGEN
from dna.envs import mujoco
from dna.envs.atari.vector import rom_of, roms
from dna.envs.benchmark_scores import atari_game, procgen_game
from dna.envs.guard import one_line
from dna.envs.procgen import GAMES
from dna.envs.protocol import Source


def factory(config: EnvConfig, *, allow_import: bool = False, render: bool = False) -> Source:
    """A callable that makes one environment of this id; refuses ids that do not exist."""
    if not config.id:
        raise BadInput(
            "env.id: names no environment; an environment from Python must be passed again, "
            "for example dna.load(FOLDER, env=…)"
        )
    options: dict[str, Any] = dict(config.options)
    if render:
        options["render_mode"] = "rgb_array"
    if ":" in config.id:
        return _imported(config.id, options, allow_import)
    _check_registered(config.id)
    return lambda: _make(config.id or "", options)


def _make(env_id: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        with mujoco.building(env_id, render="render_mode" in options):
            return gymnasium.make(env_id, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{env_id}: {str(error).splitlines()[0]}") from error
    except Exception as error:
        raise BadInput(f"{env_id}: cannot be made ({one_line(error)})") from error


def _check_registered(env_id: str) -> None:
    if env_id.startswith("MinAtar/"):
        register_minatar()
    if env_id.startswith(ATARI):
        rom_of(env_id)
    mujoco.check(env_id)
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise BadInput(f"{quoted(env_id)}: no such environment{_hint(env_id)}") from None


def _hint(env_id: str) -> str:
    """Suggest the nearest id; Gymnasium does not know the other names of a game."""
    if game := atari_game(env_id):
        return f"; did you mean '{ATARI}{game}-v5'?"
    if game := procgen_game(env_id):
        return f"; did you mean '{PROCGEN}{game}'?"
    hint = nearest(env_id, list(gymnasium.registry))
    return hint or "; `dna list envs` shows what is installed"


def register_minatar() -> None:
    """Register MinAtar's ids, which importing it does not do."""
    if "MinAtar/Breakout-v1" in gymnasium.registry:
        return
    try:
        minatar = importlib.import_module("minatar.gym")
    except ImportError:
        raise MissingExtra("MinAtar", "minatar") from None
    minatar.register_envs()


def ids() -> tuple[list[str], list[str]]:
    """(all ids, what is missing and how to install it), for `dna list envs`."""
    missing: list[str] = []
    for register in (register_minatar, roms):
        try:
            register()
        except MissingExtra as error:
            missing.append(str(error))
    return sorted([*gymnasium.registry, *(PROCGEN + game for game in GAMES)]), missing


def _imported(env_id: str, options: dict[str, Any], allow_import: bool) -> Source:
    """Import `module:factory`, or Gymnasium's `module:Id-v0`; both run the module's code."""
    module_name, _, name = env_id.partition(":")
    if not allow_import:
        raise BadInput(f"{env_id}: would import the module {module_name}; add --allow-import")
    here = str(Path.cwd())
    if here not in sys.path:  # the installed command does not search the working directory
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{env_id}: cannot import {module_name} ({one_line(error)})") from error
    if name in gymnasium.registry:
        return lambda: _make(name, options)
    made = getattr(module, name, None)
    if not callable(made):
        raise BadInput(f"{env_id}: {module_name} has neither a callable nor an id '{name}'")
    return lambda: _call(made, options)


def _call(made: Any, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Call a user's factory; one without `render_mode` may still render."""
    try:
        env: gymnasium.Env[Any, Any] = made(**options)
    except TypeError:
        if "render_mode" not in options:
            raise
        env = made(**{k: v for k, v in options.items() if k != "render_mode"})
    return env
