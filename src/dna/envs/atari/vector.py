"""A vector of Atari games as in the paper: stacked frames, exact snapshots (table 3, app. A).

Games run in worker processes (`dna.envs.atari.workers`), or in this process if one is enough.
What they show does not depend on the number of workers.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, EnvironmentFailure, MissingExtra
from dna.common.messages import nearest, quoted
from dna.common.threads import cores
from dna.config import EnvConfig
from dna.config.environments import ATARI, Atari
from dna.envs.atari.time_bar import draw_time
from dna.envs.atari.workers import GamesTask, InProcess, WorkerPool, shared_layout
from dna.envs.image_ops import interleave
from dna.envs.protocol import ALL, Array, Making, State, Step, guard
from dna.envs.specs import ActionSpec, ObservationSpec, Stack

#: Fewer games than this are not worth a process of their own.
GAMES_PER_WORKER = 4
#: The shared arrays in a snapshot; `counters` are those of `game.COUNTERS`.
SAVED = ("state", "length", "counters", "screens", "elapsed")


class AtariVector:
    """Games of one kind, one per agent, stepped together."""

    can_hold = True
    can_reseed = True
    inexact: str | None = None
    fps = 15  # decisions in a second of play

    def __init__(self, config: EnvConfig, making: Making) -> None:
        assert config.atari is not None
        settings = self.settings = config.atari
        self.name = config.id or ""
        self.agents = making.agents
        rom = rom_of(self.name)
        self.names, screen = _describe(rom, settings)
        self.actions = len(self.names)
        #: The frame at which the time bar is full; None: no bar.
        self.limit = settings.max_frames if settings.time == "bar" else None
        size = settings.size
        self.observation = ObservationSpec(
            "image", (size, size, settings.stack), "uint8", Stack(self.limit)
        )
        self.action = ActionSpec("categorical", (self.actions,))
        layout = shared_layout(self.agents, size, screen)
        task = GamesTask(rom, settings, making.seeds, layout)
        workers = 1 if making.render else _workers(making)
        with guard(self.name):
            self.runner: InProcess | WorkerPool = (
                InProcess(task) if workers == 1 else WorkerPool(self.name, task, workers)
            )
        self.shared = self.runner.shared
        # The last frames of all agents, oldest first: a ring of arrays.
        self.planes: list[Array] = [
            np.zeros((self.agents, size, size), dtype=np.uint8) for _ in range(settings.stack)
        ]

    def reset(self) -> Array:
        """First observations of new games."""
        with guard(self.name):
            self.runner.run(b"r")
        for plane in self.planes:
            plane[:] = self.shared["frame"]
        return self._observe()

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """One decision of every agent, or of the active ones."""
        shared = self.shared
        valid = np.ones(self.agents, dtype=np.bool_) if active is None else active
        shared["action"][:] = self._checked(action[:, 0], valid)
        shared["active"][:] = valid
        with guard(self.name):
            self.runner.run(b"s")
        done = shared["done"] & valid
        return Step(
            final_obs=self._push(done, valid),
            obs=self._observe(),
            reward=np.where(valid, shared["reward"], np.float32(0)),
            terminated=shared["terminated"] & valid,
            done=done,
            valid=valid.copy(),
            over=shared["over"] & valid,
            unseen=np.where(valid, shared["unseen"], np.float32(0)),
            elapsed=shared["elapsed"].copy(),
        )

    def _checked(self, action: Array, valid: Array) -> Array:
        """Refuse actions out of range, which make emulators read out of bounds or hang."""
        wrong = np.flatnonzero(((action < 0) | (action >= self.actions)) & valid)
        if len(wrong):
            raise EnvironmentFailure(
                f"{self.name}, agent {wrong[0]}: action {action[wrong[0]]} is not one of "
                f"0 to {self.actions - 1}"
            )
        return action

    def _push(self, done: Array, valid: Array) -> dict[int, Array]:
        """Shift the stacks by a frame; returns the last stacks of episodes that ended."""
        frame = self.shared["frame"]
        inactive = np.flatnonzero(~valid)
        kept = [plane[inactive] for plane in self.planes]
        oldest, *rest = self.planes
        oldest[:] = frame
        self.planes = [*rest, oldest]
        for plane, old in zip(self.planes, kept, strict=True):
            plane[inactive] = old
        finals: dict[int, Array] = {}
        for i in np.flatnonzero(done):
            last = np.stack([*(plane[i] for plane in rest), self.shared["final"][i]])
            self._draw(last[:1], self.shared["last"][i, None])
            finals[int(i)] = np.moveaxis(last, 0, -1)
            for plane in self.planes:
                plane[i] = frame[i]  # a first frame fills its stack
        return finals

    def _observe(self) -> Array:
        """Stacks [A, H, W, K] with the time bar on their oldest frames, which drop out next."""
        self._draw(self.planes[0], self.shared["elapsed"])
        return interleave(self.planes)

    def _draw(self, frames: Array, elapsed: Array) -> None:
        if self.limit is not None:
            draw_time(frames, elapsed, self.limit)

    def reseed(self, agent: int, seed: int) -> None:
        """Play this agent's next game on a new emulator with this seed."""
        self.shared["seed"][agent] = seed + 1

    def uniform(
        self,
        rng: np.random.Generator,
        agents: int | None = None,
        own: slice = ALL,
        only: int | None = None,
    ) -> Array:
        """Actions drawn uniformly."""
        if only is not None:
            return rng.integers(0, self.actions, size=(1, 1))
        return rng.integers(0, self.actions, size=(agents or self.agents, 1))[own]

    def snapshot(self) -> State:
        """Emulators with their generators, last screens, counters and frame stacks."""
        with guard(self.name):
            self.runner.run(b"w")
        saved = {name: self.shared[name].copy() for name in SAVED}
        return saved | {"stacks": np.stack(self.planes, axis=1)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a snapshot."""
        stacks = np.stack(self.planes, axis=1)
        targets = {name: self.shared[name] for name in SAVED} | {"stacks": stacks}
        expected = {name: (array.shape, array.dtype) for name, array in targets.items()}
        if {name: (array.shape, array.dtype) for name, array in state.items()} != expected:
            raise EnvironmentFailure(f"{self.name}: the snapshot was taken with other settings")
        held = state["counters"][:, 4]  # the action of the previous frame
        if ((held < 0) | (held >= self.actions)).any():
            raise EnvironmentFailure(
                f"{self.name}: the snapshot was taken with another action set"
            )
        for name in SAVED:
            self.shared[name][...] = state[name]
        for k, plane in enumerate(self.planes):
            plane[:] = state["stacks"][:, k]
        with guard(self.name):
            self.runner.run(b"l")

    def picture(self) -> Array:
        """Agent 0's screen in color."""
        assert isinstance(self.runner, InProcess), "needs Making(render=True)"
        picture: Array = self.runner.games.games[0].ale.getScreenRGB()
        return picture

    def meanings(self) -> tuple[str, ...]:
        """The emulator's names for the actions: noop, fire, upright …"""
        return self.names

    def close(self) -> None:
        """End the workers."""
        self.runner.close()


def _workers(making: Making) -> int:
    # Four to a core: while one worker resets a game, which is slow, the others step.
    wanted = making.threads or 4 * max(cores() // making.neighbors, 1)
    if os.name != "posix":
        return 1  # a worker inherits its socket and memory as file descriptors
    return max(1, min(wanted, making.agents // GAMES_PER_WORKER))


def _describe(rom: str, settings: Atari) -> tuple[tuple[str, ...], tuple[int, int]]:
    """The names of the actions, and the size of the screen."""
    from dna.envs.atari.game import action_name, actions_of, emulator

    ale = emulator(rom)
    height, width = ale.getScreenDims()
    return tuple(map(action_name, actions_of(ale, settings))), (height, width)


def roms() -> dict[str, str]:
    """`ALE/Breakout-v5` → the name of its ROM, for every installed game."""
    try:
        import ale_py  # noqa: F401  importing it registers its ids
    except ImportError:
        raise MissingExtra("Atari", "atari") from None
    import gymnasium

    known: dict[str, Any] = {
        name: spec.kwargs["game"]
        for name, spec in gymnasium.registry.items()
        if name.startswith(ATARI)
    }
    return known


def rom_of(env_id: str) -> str:
    """The ROM of an id; an unknown id is refused, with the nearest known one as a hint."""
    known = roms()
    if env_id not in known:
        hint = nearest(env_id, list(known)) or "; `dna list envs` shows all"
        raise BadInput(f"{quoted(env_id)}: no such Atari game{hint}")
    return known[env_id]
