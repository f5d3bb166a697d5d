"""Tic-tac-toe against a random player, with an action mask for the rules of the game.

The mask in `info["action_mask"]` says which squares are free. The agent never chooses any other
square, in training or in play; the environment would raise an exception.

    python examples/masked_board_game.py
    python examples/masked_board_game.py --interactions 200000
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import dna

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class TicTacToe(gymnasium.Env[Any, int]):
    """The agent is +1; the random player is −1 and begins half of the games."""

    observation_space = spaces.Box(-1, 1, (9,), np.float32)
    action_space = spaces.Discrete(9)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.board = np.zeros(9, np.float32)
        if self.np_random.random() < 0.5:
            self.answer()
        return self.seen()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.board[action] != 0:
            raise ValueError(f"square {action} is taken")
        self.board[action] = 1
        if not self.over():
            self.answer()
        obs, info = self.seen()
        return obs, float(self.winner()), self.over(), False, info

    def answer(self) -> None:
        self.board[self.np_random.choice(np.flatnonzero(self.board == 0))] = -1

    def winner(self) -> int:
        sums = [self.board[list(line)].sum() for line in LINES]
        return int(3 in sums) - int(-3 in sums)

    def over(self) -> bool:
        return self.winner() != 0 or not (self.board == 0).any()

    def seen(self) -> tuple[Any, dict[str, Any]]:
        return self.board.copy(), {"action_mask": self.board == 0}


def play(agent: dna.DNA, games: int) -> tuple[int, int, int]:
    """Play games with `predict`; return how many were won, drawn and lost."""
    env, results = TicTacToe(), []
    for game in range(games):
        obs, info = env.reset(seed=game)
        done, reward = False, 0.0
        while not done:
            action, _ = agent.predict(obs, deterministic=True, action_mask=info["action_mask"])
            assert info["action_mask"][action], "an illegal move"
            obs, reward, done, _, info = env.step(action)
        results.append(reward)
    return results.count(1.0), results.count(0.0), results.count(-1.0)


def main(interactions: int = 50_000, games: int = 200) -> tuple[int, int, int]:
    """Learn, then play."""
    agent = dna.DNA(TicTacToe, returns__gamma=1.0, warm_up=None)
    before = play(agent, games)
    agent.learn(interactions)
    after = play(agent, games)
    print("won, drawn, lost:", before, "→", after, "| mean result:", agent.evaluate(100))
    return after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interactions", type=int, default=50_000)
    parser.add_argument("--games", type=int, default=200)
    main(**vars(parser.parse_args()))
