"""The panel's drawing on known inputs, by pixel."""

import numpy as np
import pytest

from dna.common.errors import BadInput
from dna.evaluation.film import (
    BAR,
    CHOSEN,
    HEIGHT,
    LINES,
    TRACK,
    WIDTH,
    Box,
    Moment,
    Panel,
    as_frame,
    bars_of,
    chart,
    choice_bar,
    most_likely,
    number,
    real_bar,
    sheet,
)

BOX = Box(10, 10, 310, 30)


def moment(step=0, other=0.5, p=(0.25, 0.75), picture=(10, 10, 3), **more):
    given = {
        "picture": np.zeros(picture, np.uint8),
        "step": step,
        "score": 3.0,
        "value": 0.25 + step,
        "other": other,
        "choices": (np.array(p),),
        "normal": np.zeros((2, 0)),
        "action": np.array([1]),
    }
    return Moment(**given | more)


def count(image, color):
    return int((np.asarray(image) == color).all(axis=-1).sum())


def drawn(chance, chosen):
    image, draw = sheet(320, 40)
    choice_bar(draw, BOX, "left", chance, chosen)
    row = np.asarray(image)[20]
    inside = (row == TRACK).all(-1) | (row == BAR).all(-1) | (row == CHOSEN).all(-1)
    fill = CHOSEN if chosen else BAR
    return int((row == fill).all(-1).sum()) / int(inside.sum())


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_bar_is_as_long_as_its_probability(chance, chosen):
    assert drawn(chance, chosen) == pytest.approx(chance, abs=0.02)


def test_a_real_number_is_mean_and_sigma_and_what_was_drawn():
    image, draw = sheet(320, 40)
    real_bar(draw, BOX, "a0", 0.5, 0.25, -0.5, 1.0)
    row = np.asarray(image)[20]
    track = np.flatnonzero((row == TRACK).all(-1))
    left, right = track.min(), track.max()
    bar = np.flatnonzero((row == BAR).all(-1))
    stroke = np.flatnonzero((row == CHOSEN).all(-1))

    def at(x):
        return left + (x + 1) / 2 * (right - left)

    assert bar.min() == pytest.approx(at(0.25), abs=2)
    assert bar.max() == pytest.approx(at(0.75), abs=2)
    assert stroke.mean() == pytest.approx(at(-0.5), abs=2)


def test_the_lines_go_up_where_values_do():
    image, draw = sheet(320, 120)
    chart(draw, Box(10, 30, 310, 110), [[0.0, 1.0], [1.0, 1.0]], (0.0, 1.0), 2)
    pixels = np.asarray(image)[31:110]
    rows, columns = np.nonzero((pixels == LINES[0]).all(-1))
    first, last = rows[columns < 40].mean(), rows[columns > 280].mean()
    assert first > last + 40
    assert count(pixels, LINES[1]) > 0


@pytest.mark.parametrize("other", [None, 0.5])
def test_v_v_is_shown_only_where_it_exists(other):
    frame = Panel("DNA").draw(moment(other=other))
    assert count(frame, LINES[0]) > 20
    assert (count(frame, LINES[1]) > 20) == (other is not None)


@pytest.mark.parametrize("shape", [(10, 10, 3), (64, 64, 3), (210, 160, 3), (401, 601, 3)])
def test_frames_are_large_enough_and_even(shape):
    frame = Panel("DNA").draw(moment(picture=shape))
    assert frame.dtype == np.uint8
    assert frame.shape[0] >= HEIGHT
    assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0
    assert frame.shape[1] == as_frame(np.zeros(shape), at_least=HEIGHT).shape[1] + WIDTH


def test_huge_pictures_are_made_smaller_and_gray_ones_colored():
    assert max(as_frame(np.zeros((3000, 4000, 3)), at_least=320, at_most=1200).shape) <= 1200
    assert as_frame(np.zeros((84, 84), np.uint8)).shape[2] == 3
    with pytest.raises(BadInput, match="cannot be filmed"):
        as_frame(np.zeros((4, 4, 2)))


def test_names_groups_and_numbers_get_a_row_each():
    names = [row.name for row in bars_of(moment(), ("left", "right"))]
    assert names == ["left", "right"]
    assert [row.name for row in bars_of(moment(), ("left",))] == ["0", "1"]
    mixed = moment(
        choices=(np.array([0.5, 0.5]), np.array([1.0, 0.0])),
        normal=np.array([[0.5], [2.0]]),
        action=np.array([0, 1, 0.75]),
    )
    rows = list(bars_of(mixed, ()))
    assert [row.name for row in rows] == ["0: 0", "0: 1", "1: 0", "1: 1", "a0"]
    assert [row.chosen for row in rows] == [1.0, 0.0, 0.0, 1.0, 0.75]
    assert rows[-1].numbers == (0.5, 2.0)
    Panel("hybrid").draw(mixed)


def test_too_many_choices_are_the_likely_ones_in_order():
    p = np.arange(100) / 4950
    rows = most_likely(list(bars_of(moment(p=p), ())), 3)
    assert [row.name for row in rows] == ["97", "98", "99"]
    Panel("many").draw(moment(p=p))


def test_the_panel_grows_over_time_and_says_the_end():
    panel = Panel("DNA")
    first, second = panel.draw(moment(0)), panel.draw(moment(1))
    assert (first[:, -WIDTH:] != second[:, -WIDTH:]).any()
    last = panel.draw(moment(1, over=True))
    assert count(last[:60], CHOSEN) > count(second[:60], CHOSEN)
    assert (number(3.0), number(-4.638), number(12345.0)) == ("3", "-4.64", "12,345")
