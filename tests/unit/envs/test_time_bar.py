"""Time bar and action marks: pixel by pixel, as the authors' code draws them (appendix A)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dna.envs.atari.time_bar import draw_action, draw_time

LIMIT = 108_000


@given(st.integers(0, LIMIT), st.integers(0, 255))
def test_the_time_bar_pixel_by_pixel(elapsed, background):
    frames = np.full((1, 84, 84), background, np.uint8)
    draw_time(frames, np.array([elapsed]), LIMIT)
    position = 3 + 78 * elapsed / LIMIT
    for column in range(84):
        inside = 3 <= column <= 80
        if inside and column < int(position):
            value = 255
        elif inside and column == int(position):
            value = 64 + int(191 * (position - int(position)))
        else:
            value = 64 if inside else 0
        assert frames[0, 80:, column].tolist() == [0, value, value, 0]
    assert (frames[0, :80] == background).all()


def test_each_frame_has_its_own_time():
    frames = np.zeros((3, 84, 84), np.uint8)
    draw_time(frames, np.array([0, LIMIT // 2, LIMIT]), LIMIT)
    assert [(row == 255).sum() for row in frames[:, 81]] == [0, 39, 78]


@pytest.mark.parametrize("action", [0, 1, 17])
def test_an_action_is_a_white_square_at_the_left(action):
    frame = np.zeros((84, 84), np.uint8)
    draw_action(frame, action)
    expected = np.zeros((84, 84), np.uint8)
    for row in range(4 * action, 4 * action + 4):
        for column in range(4):
            expected[row, column] = 255
    assert np.array_equal(frame, expected)
