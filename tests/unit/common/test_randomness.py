"""Generators are pure functions of what they are for; no two purposes share one."""

import subprocess
import sys

import numpy as np
import pytest

from dna.common.randomness import generator, integer


def first_draw(seed: int, stream: str, *index: int) -> bytes:
    """The first 128 bits a generator gives."""
    return generator(seed, stream, *index).bytes(16)


def test_the_same_key_gives_the_same_numbers():
    ours, theirs = generator(3, "policy", 5), generator(3, "policy", 5)
    np.testing.assert_array_equal(ours.normal(size=100), theirs.normal(size=100))
    np.testing.assert_array_equal(ours.permutation(100), theirs.permutation(100))
    assert integer(3, "env", 5) == integer(3, "env", 5)


def test_the_numbers_are_the_same_in_another_process():
    code = (
        "from dna.common.randomness import generator, integer\n"
        "print(generator(3, 'a', 5).bytes(16).hex(), integer(3, 'a'))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [first_draw(3, "a", 5).hex(), str(integer(3, "a"))]


KEYS = [
    (4, "policy", 5, 6),
    (3, "value", 5, 6),
    (3, "policy", 4, 6),
    (3, "policy", 5, 7),
    (3, "policy", 6, 5),
    (3, "policy", 56),
    (3, "policy", 5),
    (3, "policy"),
    (35, "policy", 6),
]


@pytest.mark.parametrize("key", KEYS)
def test_any_other_key_gives_other_numbers(key):
    assert first_draw(*key) != first_draw(3, "policy", 5, 6)
    assert integer(*key) != integer(3, "policy", 5, 6)


def test_drawing_from_one_generator_does_not_move_another():
    used, fresh = generator(0, "a"), generator(0, "b")
    expected = generator(0, "b").normal(size=10)
    used.normal(size=1000)
    np.testing.assert_array_equal(fresh.normal(size=10), expected)


def test_no_two_of_twenty_five_thousand_generators_begin_alike():
    streams = ("env", "action")
    draws = {
        first_draw(seed, stream, env)
        for seed in range(100)
        for stream in streams
        for env in range(128)
    }
    assert len(draws) == 100 * 128 * len(streams)


def test_seeds_for_libraries_fill_31_bits():
    seeds = np.array([integer(seed, "env", env) for seed in range(100) for env in range(128)])
    assert seeds.min() >= 0
    assert seeds.max() < 2**31
    counted, _ = np.histogram(seeds, bins=16, range=(0, 2**31))
    assert abs(counted - len(seeds) / 16).max() < 5 * np.sqrt(len(seeds) / 16)


def test_neighboring_seeds_share_no_environment_seed():
    seven = {integer(7, "env", env) for env in range(128)}
    eight = {integer(8, "env", env) for env in range(128)}
    assert len(seven) == len(eight) == 128
    assert not seven & eight
