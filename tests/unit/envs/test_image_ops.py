"""Sums of bytes are exact, whoever computes them."""

import numpy as np
import pytest

from dna.envs import image_ops


@pytest.mark.parametrize("opencv", [True, False])
@pytest.mark.parametrize("rows", [1, 2, image_ops.EXACT_IMAGES, image_ops.EXACT_IMAGES + 1])
@pytest.mark.parametrize("shape", [(5,), (6, 4), (6, 4, 3)])
def test_sums_and_sums_of_squares_are_those_of_whole_numbers(shape, rows, opencv, monkeypatch):
    if not opencv:
        monkeypatch.setattr(image_ops, "_opencv", lambda: None)
    batch = np.random.default_rng(0).integers(0, 256, size=(rows, *shape), dtype=np.uint8)
    batch.reshape(rows, -1)[:, 0] = 255
    total, squares = image_ops.sums(batch)
    assert total.dtype == squares.dtype == np.float64
    whole = batch.astype(np.int64)
    assert np.array_equal(total, whole.sum(axis=0))
    assert np.array_equal(squares, (whole * whole).sum(axis=0))


def test_a_view_is_summed_like_a_copy():
    batch = np.random.default_rng(0).integers(0, 256, size=(4, 8, 6, 4), dtype=np.uint8)
    view = batch[:, ::2, :, 1:]
    for mine, yours in zip(image_ops.sums(view), image_ops.sums(view.copy()), strict=True):
        assert np.array_equal(mine, yours)
