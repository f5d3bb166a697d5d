"""The Atari games of one process, prepared as the paper prepares them (table 3, app. A).

Seen is the maximum of the last two screens, resized by area, with a mark of the action; what
one game does is in `dna.envs.atari.game`. Imports no torch: worker processes load this module.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dna.common.errors import EnvironmentFailure, MissingExtra
from dna.config.environments import Atari
from dna.envs.atari.game import Frame, Game
from dna.envs.atari.shared_memory import Board
from dna.envs.atari.time_bar import draw_action

try:
    import cv2
except ImportError:
    raise MissingExtra("Atari", "atari") from None

# A worker steps its games one after the other: OpenCV's own threads would only get in the way.
cv2.setNumThreads(1)


class Games:
    """The games of one process: agents `rows` of a board that all processes share."""

    def __init__(
        self, rom: str, settings: Atari, seeds: Sequence[int], rows: range, board: Board
    ) -> None:
        self.settings = settings
        self.board = {name: array[rows.start : rows.stop] for name, array in board.items()}
        screens = self.board["screens"]  # [n, 2, H, W]: not in one piece for all the newer
        self.screens: Frame = np.zeros((2, len(rows), *screens.shape[2:]), dtype=np.uint8)
        self.games = [
            Game(rom, settings, seed, self.screens[:, i]) for i, seed in enumerate(seeds)
        ]

    def do(self, command: bytes) -> None:
        """Carry out what the parent says: step, reset, write a snapshot, load one."""
        {b"s": self.step, b"r": self.reset, b"w": self.save, b"l": self.load}[command]()

    def reset(self) -> None:
        """Begin a game for every agent."""
        for i in range(len(self.games)):
            self._begin(i)
        self._show(slice(None))
        self.board["elapsed"][:] = 0

    def step(self) -> None:
        """One decision of each active agent."""
        board, games = self.board, self.games
        for name in ("unseen", "terminated", "done", "over"):
            board[name][:] = 0
        active = np.flatnonzero(board["active"]).tolist()
        action = board["action"].tolist()
        played = [games[i].skip(action[i]) for i in active]
        self._show(slice(None) if len(active) == len(games) else active, action)
        board["reward"][active] = [reward for reward, _ in played]
        board["elapsed"][active] = [games[i].elapsed for i in active]
        for i, (_, over) in zip(active, played, strict=True):
            lost = games[i].lost_life()
            if over or lost or games[i].timeout():
                self._end(i, over=over, lost=lost)

    def _begin(self, i: int) -> None:
        """The next game, from a new seed if there is one."""
        seed = int(self.board["seed"][i]) - 1
        if seed >= 0:
            self.games[i].insert(seed)
            self.board["seed"][i] = 0
        self.games[i].reset()

    def _end(self, i: int, *, over: bool, lost: bool) -> None:
        """An episode is over: keep its last frame, and begin the next life or game."""
        game, board = self.games[i], self.board
        board["final"][i] = board["frame"][i]
        board["last"][i] = game.elapsed
        board["done"][i], board["terminated"][i] = True, over or lost
        ended, shown = over or game.timeout(), None
        if not ended:
            board["unseen"][i], ended = game.next_life()
            shown = {i: 0}
        if ended:
            self._begin(i)
            shown = None
        board["over"][i] = ended
        board["elapsed"][i] = 0  # a first observation shows time zero, in a new life too
        self._show([i], shown)

    def _show(
        self, rows: slice | list[int], action: Mapping[int, int] | list[int] | None = None
    ) -> None:
        """The maximum of the last two screens, resized by area, with the action's mark.

        All games at once lie one above the other: areas never cross from one to the next.
        """
        frame, newer, older = self.board["frame"], self.screens[0], self.screens[1]
        for part in [rows] if isinstance(rows, slice) else [slice(i, i + 1) for i in rows]:
            if self.settings.skip > 1:
                np.maximum(newer[part], older[part], out=newer[part])
            size, source = self.settings.size, newer[part]
            cv2.resize(
                source.reshape(-1, source.shape[2]),
                (size, size * len(source)),
                dst=frame[part].reshape(-1, size),
                interpolation=cv2.INTER_AREA,
            )
        if action is not None and self.settings.last_action == "mark":
            for i in range(len(frame)) if isinstance(rows, slice) else rows:
                draw_action(frame[i], action[i])

    def save(self) -> None:
        """Write every game's state to the board."""
        for i, game in enumerate(self.games):
            state, self.board["counters"][i] = game.save()
            if len(state) > self.board["state"].shape[1]:
                raise EnvironmentFailure(f"a state of {len(state)} bytes is too large")
            self.board["state"][i, : len(state)] = np.frombuffer(state, dtype=np.uint8)
            self.board["state"][i, len(state) :] = 0  # of a longer one before
            self.board["length"][i] = len(state)
        self.board["screens"][:] = self.screens.swapaxes(0, 1)

    def load(self) -> None:
        """Put every game where the board says."""
        for i, game in enumerate(self.games):
            state = self.board["state"][i, : self.board["length"][i]].tobytes()
            game.load(state, self.board["counters"][i])
        self.screens[:] = self.board["screens"].swapaxes(0, 1)
