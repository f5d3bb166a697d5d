"""Logs are read a line at a time, and a damaged or hostile one is refused."""

import json
import os

import pytest

from dna.common.errors import StorageFailure
from dna.common.json_lines import LINE_LIMIT, curve, last_row, parse_row, rows

GOOD = (
    b'{"interactions": 64, "score": null, "noise/x": NaN}\n'
    b'{"interactions": 128, "score": 3.0}\n'
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD)
    return path


def test_rows_and_the_curve_in_them(log):
    assert [row["interactions"] for row in rows(log, "score")] == [64, 128]
    assert curve(log) == [(128, 3.0)]
    assert last_row(log) == {"interactions": 128, "score": 3.0}


def test_half_a_line_at_the_end_is_left_out_where_that_is_asked_for(log):
    log.write_bytes(GOOD + b'{"interactions": 1')
    assert curve(log, whole=False) == [(128, 3.0)]
    assert last_row(log) == {"interactions": 128, "score": 3.0}
    with pytest.raises(StorageFailure, match="line 3 is not a row of numbers"):
        curve(log)


@pytest.mark.parametrize(
    "line",
    [
        '{"interactions": 1%s}' % ("0" * 400),
        '{"interactions": 1, "score": 1%s}' % ("0" * 400),
        '{"interactions": 1, "score": 1%s}' % ("0" * 5000),
        '{"interactions": 1, "score": 1e999}',
        '{"interactions": 1, "score": NaN}',
        '{"interactions": 1, "time/env": Infinity}',
        '{"interactions": 1, "score": {}}',
        '{"interactions": 1, "score": "3"}',
        '{"interactions": 1, "score": true}',
        '{"interactions": 1.5}',
        '{"interactions": -1}',
        '{"interactions": true}',
        '{"score": 1}',
        "[1, 2]",
        "[" * 100_000,
        "",
    ],
    ids=lambda line: line[:40],
)
def test_a_line_that_is_no_row_of_numbers_is_refused(line):
    with pytest.raises(ValueError, match=r"."):
        parse_row(line.encode())


def test_a_row_without_what_is_asked_for_names_it(log):
    with pytest.raises(StorageFailure, match="line 1 has no length"):
        list(rows(log, "length"))


def test_a_sparse_log_of_six_gigabytes_is_refused_unread(log):
    os.truncate(log, 6 * 10**9)
    with pytest.raises(StorageFailure, match="6,000,000,000 bytes, more than any log"):
        list(rows(log))
    assert last_row(log) is None


def test_a_line_without_an_end_is_refused(log):
    os.truncate(log, 2 * LINE_LIMIT)
    found = rows(log)
    assert [next(found)["interactions"], next(found)["interactions"]] == [64, 128]
    with pytest.raises(StorageFailure, match="a line of more than 1,048,576 bytes"):
        next(found)


def test_links_are_not_followed(log, tmp_path):
    (tmp_path / "link").symlink_to(log)
    for read in (lambda path: list(rows(path)), last_row):
        with pytest.raises(StorageFailure):
            read(tmp_path / "link")


def test_the_last_row_is_found_behind_a_long_log(log):
    row = {"interactions": 192, "score": 1.0, **{f"x/{i}": 0.5 for i in range(100)}}
    log.write_bytes(GOOD + (json.dumps(row) + "\n").encode() * 100)
    assert last_row(log) == row
