"""Frames stored once give back the stacks that environments handed out (appendix A)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dna.envs.atari.time_bar import draw_time
from dna.envs.specs import Stack
from dna.networks.frames import Frames, FrameWriter, JoinedRollouts, ObservationWriter

SIZE, LIMIT = 12, 1000


class Stacking:
    """Ordinary frame stacking with a time bar: what an environment does."""

    def __init__(self, agents: int, depth: int, rng: np.random.Generator) -> None:
        self.rng, self.agents = rng, agents
        self.history = np.repeat(self.frames()[..., None], depth, axis=-1)
        self.elapsed = np.zeros(agents, dtype=np.int64)

    def frames(self) -> np.ndarray:
        return self.rng.integers(0, 256, (self.agents, SIZE, SIZE), dtype=np.uint8)

    def step(self, new: np.ndarray) -> None:
        fresh = self.frames()
        self.history = np.concatenate([self.history[..., 1:], fresh[..., None]], axis=-1)
        self.history[new] = fresh[new][..., None]
        self.elapsed = np.where(new, 0, self.elapsed + self.rng.integers(1, 5, self.agents))

    def obs(self, bar: bool) -> torch.Tensor:
        stack = self.history.copy()
        if bar:
            draw_time(stack[..., 0], self.elapsed, LIMIT)
        return torch.from_numpy(stack)


def written(
    depth: int, agents: int, resets: np.ndarray, seed: int, bar: bool, skip: int = 0
) -> tuple[Frames, torch.Tensor]:
    """A rollout through the writer, and the stacks as the environment showed them."""
    env = Stacking(agents, depth, np.random.default_rng(seed))
    for _ in range(skip):  # the rollout begins in the middle of episodes
        env.step(np.zeros(agents, dtype=np.bool_))
    obs = env.obs(bar)
    stack = Stack(LIMIT if bar else None)
    writer = FrameWriter(len(resets) + 1, obs.numpy(), env.elapsed, stack)
    shown = [obs]
    for t, new in enumerate(resets, start=1):
        env.step(new)
        shown.append(env.obs(bar))
        writer.add(t, shown[-1].numpy(), new, env.elapsed)
    return writer.finish(), torch.stack(shown).flatten(0, 1)


@settings(max_examples=150, deadline=None)
@given(
    depth=st.integers(1, 6),
    agents=st.integers(1, 4),
    steps=st.integers(1, 12),
    chance=st.sampled_from([0.0, 0.2, 0.7]),
    skip=st.integers(0, 5),
    seed=st.integers(0, 2**16),
    bar=st.booleans(),
)
def test_gathering_equals_ordinary_stacking(depth, agents, steps, chance, skip, seed, bar):
    resets = np.random.default_rng(seed).random((steps, agents)) < chance
    frames, shown = written(depth, agents, resets, seed, bar, skip)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(shown)))
    assert len(frames) == len(shown)
    assert torch.equal(frames[order], shown[order])
    assert torch.equal(frames[1:3], shown[1:3])
    assert frames[:0].shape == (0, SIZE, SIZE, depth)


def test_each_frame_is_stored_once():
    frames, shown = written(4, 3, np.zeros((29, 3), dtype=np.bool_), 0, bar=True)
    assert frames.frames.numel() == (3 + 30) * 3 * SIZE * SIZE
    assert shown.numel() == 30 * 3 * SIZE * SIZE * 4


def test_gathering_twice_gives_the_same_although_the_bar_is_drawn():
    frames, shown = written(1, 2, np.zeros((3, 2), dtype=np.bool_), 0, bar=True)
    index = torch.arange(len(frames))
    assert torch.equal(frames[index], shown)
    assert torch.equal(frames[index], shown)


def test_a_head_leaves_out_the_last_states_without_a_copy():
    frames, shown = written(4, 3, np.zeros((4, 3), dtype=np.bool_), 0, bar=True)
    head = frames.head(12)
    assert len(head) == 12
    assert head.frames is frames.frames
    assert torch.equal(head[:12], shown[:12])


@pytest.mark.parametrize("limit", [None, LIMIT])
def test_a_checkpoint_gives_the_frames_back(limit):
    frames, shown = written(4, 2, np.eye(2, dtype=np.bool_), 0, bar=limit is not None)
    again = Frames.load(frames.head(4).state())
    assert len(again) == 4
    assert again.limit == limit
    assert torch.equal(again[:4], shown[:4])


@settings(max_examples=50, deadline=None)
@given(parts=st.integers(1, 4), seed=st.integers(0, 2**16))
def test_rollouts_joined_read_as_one(parts, seed):
    resets = np.random.default_rng(seed).random((5, 2)) < 0.3
    pairs = [written(4, 2, resets, seed + i, bar=True) for i in range(parts)]
    joined = JoinedRollouts(tuple(frames for frames, _ in pairs))
    shown = torch.cat([obs for _, obs in pairs])
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(shown)))
    assert len(joined) == len(shown)
    assert torch.equal(joined[order], shown[order])
    assert torch.equal(joined[order[:3]], shown[order[:3]]), "some rollouts without a row"
    assert torch.equal(joined[2:9], shown[2:9])


def test_other_observations_are_written_row_after_row():
    states = torch.randn(4, 3, 5)
    writer = ObservationWriter(4, states[0].numpy())
    for t in range(1, 4):
        writer.add(t, states[t].numpy(), np.zeros(3, dtype=np.bool_), np.zeros(3))
    assert torch.equal(writer.finish(), states.flatten(0, 1))
