"""Atari as the paper plays it: many games, stacked frames, exact snapshots (table 3, app. A).

Games run in worker processes (`workers`) or, with one, in this process. A vector of
games does not depend on how many workers step it.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, EnvironmentFailure, MissingExtra
from dna.common.messages import nearest, quoted
from dna.config import EnvConfig
from dna.config.environments import ATARI, Atari
from dna.envs import ALL, Array, Making, State, Step
from dna.envs.atari.shared_memory import Board, bytes_of, fields, lay_out
from dna.envs.atari.time_bar import draw_time
from dna.envs.atari.workers import Cast, Crew, cores
from dna.envs.guard import guard
from dna.envs.image_ops import interleave
from dna.envs.specs import ActionSpec, ObservationSpec, Stack

#: Fewer games than this are not worth a process of their own.
GAMES_PER_WORKER = 4
#: What a snapshot holds of the board; `counters` are those of `Game.save`.
SAVED = ("state", "length", "counters", "screens", "elapsed")


class AtariVector:
    """Games of one kind, one per agent, stepped together."""

    can_hold = can_reseed = True
    inexact: str | None = None
    fps = 15  # decisions in a second of play

    def __init__(self, config: EnvConfig, making: Making) -> None:
        assert config.atari is not None
        self.settings = config.atari
        self.name, self.agents = config.id or "", making.agents
        rom = rom_of(self.name)
        self.names, screen = _describe(rom, self.settings)
        self.actions = actions = len(self.names)
        size, self.depth = self.settings.size, self.settings.stack
        limit = self.settings.max_frames if self.settings.time == "bar" else None
        self.limit = limit
        self.observation = ObservationSpec(
            "image", (size, size, self.depth), "uint8", Stack(limit)
        )
        self.action = ActionSpec("categorical", (actions,))
        cast = Cast(rom, self.settings, making.seeds, fields(self.agents, size, screen))
        workers = 1 if making.render else _workers(making)
        with guard(self.name):
            self.crew = Solo(cast) if workers == 1 else Crew(self.name, cast, workers)
        self.board = self.crew.board
        # The last frames of all agents, oldest first; the arrays go round.
        self.planes: list[Array] = [
            np.zeros((self.agents, size, size), dtype=np.uint8) for _ in range(self.depth)
        ]

    def reset(self) -> Array:
        """First observations of new games."""
        with guard(self.name):
            self.crew.run(b"r")
        for plane in self.planes:
            plane[:] = self.board["frame"]
        return self._observe()

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """One decision of every agent, or of the active ones."""
        board = self.board
        valid = np.ones(self.agents, dtype=np.bool_) if active is None else active
        board["action"][:] = self._checked(action[:, 0], valid)
        board["active"][:] = valid
        with guard(self.name):
            self.crew.run(b"s")
        done = board["done"] & valid
        return Step(
            final_obs=self._push(done, valid),
            obs=self._observe(),
            reward=np.where(valid, board["reward"], np.float32(0)),
            terminated=board["terminated"] & valid,
            done=done,
            valid=valid.copy(),
            over=board["over"] & valid,
            unseen=np.where(valid, board["unseen"], np.float32(0)),
            elapsed=board["elapsed"].copy(),
        )

    def _checked(self, action: Array, valid: Array) -> Array:
        """An action out of range would read another program's memory, or hang."""
        wrong = np.flatnonzero(((action < 0) | (action >= self.actions)) & valid)
        if len(wrong):
            raise EnvironmentFailure(
                f"{self.name}, agent {wrong[0]}: action {action[wrong[0]]} is not one of "
                f"0 to {self.actions - 1}"
            )
        return action

    def _push(self, done: Array, valid: Array) -> dict[int, Array]:
        """Move the stacks on by a frame; returns the last stacks of episodes that ended."""
        frame, still = self.board["frame"], np.flatnonzero(~valid)
        kept = [plane[still] for plane in self.planes]
        oldest, *rest = self.planes
        oldest[:] = frame
        self.planes = [*rest, oldest]
        for plane, old in zip(self.planes, kept, strict=True):
            plane[still] = old
        finals: dict[int, Array] = {}
        for i in np.flatnonzero(done):
            last = np.stack([*(plane[i] for plane in rest), self.board["final"][i]])
            self._draw(last[:1], self.board["last"][i, None])
            finals[int(i)] = np.moveaxis(last, 0, -1)
            for plane in self.planes:
                plane[i] = frame[i]  # a first frame fills its stack
        return finals

    def _observe(self) -> Array:
        """Stacks [A, H, W, K] with the time on their oldest frames, which leave next."""
        self._draw(self.planes[0], self.board["elapsed"])
        return interleave(self.planes)

    def _draw(self, frames: Array, elapsed: Array) -> None:
        if self.limit is not None:
            draw_time(frames, elapsed, self.limit)

    def reseed(self, agent: int, seed: int) -> None:
        """The game behind this one is played on a new console."""
        self.board["seed"][agent] = seed + 1

    def uniform(
        self,
        rng: np.random.Generator,
        agents: int | None = None,
        own: slice = ALL,
        only: int | None = None,
    ) -> Array:
        """Actions drawn uniformly."""
        drawn = 1 if only is not None else agents or self.agents
        return rng.integers(0, self.actions, size=(drawn, 1))[ALL if only is not None else own]

    def snapshot(self) -> State:
        """Emulators with their generators, last screens, counters and frame stacks."""
        with guard(self.name):
            self.crew.run(b"w")
        saved = {name: self.board[name].copy() for name in SAVED}
        return saved | {"stacks": np.stack(self.planes, axis=1)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from a snapshot."""
        stacks = np.stack(self.planes, axis=1)
        targets = {name: self.board[name] for name in SAVED} | {"stacks": stacks}
        expected = {name: (array.shape, array.dtype) for name, array in targets.items()}
        if {name: (array.shape, array.dtype) for name, array in state.items()} != expected:
            raise EnvironmentFailure(f"{self.name}: a snapshot of other settings")
        held = state["counters"][:, 4]
        if ((held < 0) | (held >= self.actions)).any():
            raise EnvironmentFailure(f"{self.name}: a snapshot of another set of actions")
        for name in SAVED:
            self.board[name][...] = state[name]
        for k, plane in enumerate(self.planes):
            plane[:] = state["stacks"][:, k]
        with guard(self.name):
            self.crew.run(b"l")

    def picture(self) -> Array:
        """Agent 0's screen in colors."""
        assert isinstance(self.crew, Solo), "made to be filmed with Making(render=True)"
        picture: Array = self.crew.games.games[0].ale.getScreenRGB()
        return picture

    def meanings(self) -> tuple[str, ...]:
        """As the emulator calls them: noop, fire, upright …"""
        return self.names

    def close(self) -> None:
        """End the workers."""
        self.crew.close()


class Solo:
    """The games of all agents, in this process."""

    def __init__(self, cast: Cast) -> None:
        from dna.envs.atari.ale import Games

        self.board: Board = lay_out(bytearray(bytes_of(cast.layout)), cast.layout)
        rows = range(len(cast.seeds))
        self.games = Games(cast.rom, cast.settings, cast.seeds, rows, self.board)

    def run(self, command: bytes) -> None:
        """Carry out a command for every agent."""
        self.games.do(command)

    def close(self) -> None:
        """Nothing holds more than memory."""


def _workers(making: Making) -> int:
    # Four to a core: where one game's reset takes long, the others even it out.
    wanted = making.threads or 4 * max(cores() // making.neighbors, 1)
    if os.name != "posix":
        return 1  # a worker inherits its line and memory as file descriptors
    return max(1, min(wanted, making.agents // GAMES_PER_WORKER))


def _describe(rom: str, settings: Atari) -> tuple[tuple[str, ...], tuple[int, int]]:
    """Names of the actions, and the screen's size."""
    from dna.envs.atari.game import actions_of, emulator, name_of

    ale = emulator(rom)
    height, width = ale.getScreenDims()
    return tuple(map(name_of, actions_of(ale, settings))), (height, width)


def roms() -> dict[str, str]:
    """`ALE/Breakout-v5` → the name of its ROM, for every game there is."""
    try:
        import ale_py  # noqa: F401  its ids appear when it is imported
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
    """The ROM of an id, or one line that names the nearest."""
    known = roms()
    if env_id not in known:
        hint = nearest(env_id, list(known)) or "; `dna list envs` shows all"
        raise BadInput(f"{quoted(env_id)}: no such Atari game{hint}")
    return known[env_id]
