"""The report's parts: axes, gaps, thinning, means, escaping, reading, differences."""

import json
import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dna.common.errors import BadInput, StorageFailure
from dna.common.storage import write_json
from dna.config.overrides import tweak
from dna.config.presets import for_environment
from dna.evaluation.plots import COLORS
from dna.evaluation.report import markup
from dna.evaluation.report.charts import (
    NICE,
    Curve,
    Line,
    Look,
    Scale,
    chart,
    covering,
    curve,
    envelope,
    log_ticks,
    mean_of,
    nice_ticks,
    path,
    places,
    thin,
)
from dna.evaluation.report.curves import lines_of, noise
from dna.evaluation.report.data import Columns, RunData, by_environment, find_runs
from dna.evaluation.report.experiment import ExperimentFolder
from dna.evaluation.report.facts import preset_of, settings, written
from dna.evaluation.report.markup import Html, el, escape, markdown, table
from dna.evaluation.report.page import _resource, document, experiment_parts, page_of, run_parts
from dna.runs.folder import RunFolder
from helpers import tiny

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&\x1b[2J\u202e"\''
finite = st.floats(-1e12, 1e12)


def made(folder, config, seed=0, scores=(1.0, 2.0, 3.0), **columns):
    """A run's folder without training: its configuration and its metrics."""
    run = RunFolder(folder)
    run.begin(config, seed)
    with (folder / "metrics.jsonl").open("w") as file:
        for i, score in enumerate(scores):
            row = {"iteration": i, "interactions": 64 * (i + 1), "episodes": i, "score": score}
            row |= {name.replace("__", "/"): values[i] for name, values in columns.items()}
            file.write(json.dumps({k: v for k, v in row.items() if v is not ...}) + "\n")
    return folder


# Axes


@given(finite, st.floats(1e-9, 1e12), st.integers(2, 8))
def test_ticks_are_nice_inside_and_few(low, span, most):
    high = low + span
    if high - low < 1e-9 * abs(low):
        return
    ticks = nice_ticks(low, high, most)
    assert len(ticks) <= most + 1
    edge = 1e-6 * (high - low)
    assert all(low - edge <= tick <= high + edge for tick in ticks)
    for a, b in pairwise(ticks):
        step = b - a
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - nice) for nice in NICE) < 1e-3 * mantissa


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 300_000, ["0", "100 k", "200 k", "300 k"]),
        (0, 1_500_000, ["0", "0.5 M", "1.0 M", "1.5 M"]),
        (-0.3, 0.3, ["−0.2", "0", "0.2"]),
        (0, 2000, ["0", "500", "1,000", "1,500", "2,000"]),
        (0, 4e-5, ["0", "1e−5", "2e−5", "3e−5", "4e−5"]),
    ],
)
def test_ticks_are_written_with_one_unit_and_as_many_digits_as_needed(low, high, labels):
    assert [text for _, text in Scale(low, high).ticks(4)] == labels


def test_a_logarithmic_axis_has_powers_of_ten_or_a_few_between():
    assert log_ticks(1, 1e6, 8) == [10.0**k for k in range(7)]
    assert log_ticks(8, 120, 6) == [10, 20, 50, 100]
    assert len(log_ticks(1e-9, 1e9, 5)) <= 5
    places = [place for place, _ in Scale(10, 1000, log=True).ticks(3)]
    assert places[0] == pytest.approx(0)
    assert places[-1] == pytest.approx(1)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=30), st.booleans())
def test_no_values_break_a_chart(values, log):
    y = np.array(values, dtype=np.float64)
    line = curve(np.arange(len(y), dtype=np.float64), y, log=log)
    text = chart([Line("x", line)], Look("title", log=log))
    assert ("<svg" in text) == (not line.empty)
    assert "nan" not in re.sub(r"<title>.*?</title>", "", text)
    assert "inf" not in text


sane = st.floats(-1e150, 1e150, allow_subnormal=False)
edges = st.one_of(sane, st.sampled_from([0.0, math.inf, math.nan]))


@given(st.lists(st.tuples(edges, edges, edges), min_size=1, max_size=9), st.booleans())
@example([(math.nan, 0.0, 2.3e-308), (1e149, 0.0, 1e150)], True)
@example([(1e-149, 2.3e-308, 3e-308), (1e149, 0.0, 1e150)], True)
def test_no_interval_breaks_a_chart(rows, log):
    middle, low, high = np.array(rows, dtype=np.float64).T
    line = curve(np.arange(len(rows), dtype=np.float64), middle, log=log)
    text = chart([Line("x", line, band=(low, high))], Look("title", log=log))
    assert not re.search(r'd="[^"]*(nan|inf)', text)


def test_a_scale_shows_all_values_and_a_constant_lies_inside():
    scale = covering([np.array([1.0, np.nan, 5.0])])
    assert scale.low < 1 < 5 < scale.high
    flat = covering([np.array([2.0, 2.0])])
    assert flat.low < 2 < flat.high
    assert covering([np.array([0.0, 4.0])]).low == 0


# Curves


def test_a_gap_begins_a_new_line_and_a_lonely_point_is_a_dot():
    x = np.arange(6.0)
    y = np.array([1.0, 2.0, np.nan, 4.0, np.nan, 6.0])
    assert path(x, y) == "M0 1L1 2M3 4L3 4M5 6L5 6"


def test_thinning_keeps_ends_and_spikes_and_stays_below_its_limit():
    y = np.sin(np.linspace(0, 60, 10_000))
    y[4321], y[7777] = 50.0, -50.0
    thinned = thin(Curve(np.arange(10_000.0), y), 400)
    assert len(thinned.x) <= 400
    assert {0.0, 9999.0, 4321.0, 7777.0} <= set(thinned.x)
    assert np.all(np.diff(thinned.x) > 0)
    assert places(np.arange(5.0), 400) == [0, 1, 2, 3, 4]


def test_thinning_keeps_a_long_gap():
    y = np.ones(10_000)
    y[3000:6000] = np.nan
    thinned = thin(Curve(np.arange(10_000.0), y), 200)
    inside = (thinned.x > 3100) & (thinned.x < 5900)
    assert np.isnan(thinned.y[inside]).all()
    assert inside.any()


def interval_chart(middle, low, high, **look):
    x = np.arange(float(len(middle)))
    ends = np.array(low, dtype=float), np.array(high, dtype=float)
    line = Line("policy", Curve(x, np.array(middle, dtype=float)), band=ends)
    return chart([line], Look("b", log=True, **look))


def drawn(text, css):
    """[(x, y)] of the path of a class: y is 0 at the top edge and 1000 at the bottom."""
    found = re.search(rf'<path class="{css} c0" d="([^"]*)"', text)
    if found is None:
        return []
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", found[1])]


def axis_of(text):
    low, high, log = re.search(r'data-y="(\S+) (\S+) (\S+)"', text).groups()
    assert log == "1"
    return float(low), float(high)


def test_an_interval_without_an_end_reaches_the_edge():
    middle, nothing = [300.0, 400.0, np.nan, 500.0], np.nan
    text = interval_chart(middle, [100, 0, 90, -1], [900, 800, np.inf, np.inf])
    band = drawn(text, "band")
    assert len(band) == 8
    by_x = {x: [y for at, y in band if at == x] for x, _ in band}
    top, bottom = by_x[0.0]
    assert 0 < top < bottom < 1000
    assert by_x[333.3][1] == 1000  # from 0
    assert by_x[666.7][0] == 0  # without an upper bound
    assert by_x[666.7][1] < 1000
    assert by_x[1000.0] == [0, 1000]
    gone = interval_chart([300, 400, 500], [100, nothing, 100], [900, nothing, 900])
    assert len(drawn(gone, "band lone")) == 4  # what was not said is not drawn


def test_open_ends_take_no_room_on_the_axis():
    middle = [300.0, 400.0, 500.0]
    closed = interval_chart(middle, [250, 350, 450], [350, 450, 550])
    opened = interval_chart(middle, [250, 0, 450], [350, np.inf, 550])
    assert axis_of(opened) == axis_of(closed)
    far = axis_of(interval_chart(middle, [1e-9, 350, 450], [1e12, 450, 550]))
    assert far[0] > 30
    assert far[1] < 5000


def test_a_lone_interval_is_a_stroke():
    text = interval_chart([np.nan, 400, np.nan], [np.nan, 200, np.nan], [np.nan, 800, np.nan])
    (x, top), (same, bottom) = drawn(text, "band lone")
    assert x == same == 500
    assert bottom - top > 100
    assert drawn(text, "band") == []
    assert drawn(interval_chart([400], [0], [np.inf]), "band lone") == [(0, 0), (0, 1000)]


@pytest.mark.parametrize(("low", "high"), [(5e4, np.inf), (5e4, 6e5), (0, 2), (1, 2)])
def test_an_interval_is_seen_where_no_value_is(low, high):
    batch = Line("batch", Curve(np.zeros(1), np.full(1, 256.0)), kind="reference")
    nothing = Curve(np.zeros(1), np.full(1, np.nan))
    ends = np.array([float(low)]), np.array([float(high)])
    text = chart([Line("policy", nothing, band=ends), batch], Look("b", log=True))
    (_, top), (_, bottom) = drawn(text, "band lone")
    assert bottom - top > 100
    assert "policy without a value" in text


def test_thinning_keeps_the_widest_interval():
    n = 10_000
    low, high = np.full(n, 100.0), np.full(n, 200.0)
    low[4321], high[7777] = 0.0, np.inf
    keep = places(np.sin(np.linspace(0, 60, n)), 200)
    less, more = envelope(low, high, keep)
    assert len(less) == len(more) == len(keep)
    assert less.min() == 0
    assert np.isinf(more).sum() == 1
    same = envelope(low[:5], high[:5], places(low[:5], 200))
    assert np.array_equal(same, [low[:5], high[:5]])


def test_the_noise_section_draws_every_interval_it_was_told(tmp_path):
    extra = {
        "noise__policy__s": [1.0] * 4,
        "noise__policy__b_simple": [300.0, ..., 500.0, ...],
        "noise__policy__b_simple_low": [0.0, 90.0, 100.0, 0.0],
        "noise__policy__b_simple_high": [900.0, ..., ..., ...],
        "noise__value__s": [1.0] * 4,
        "noise__value__b_simple_low": [90.0] * 4,  # never a value, always "at least"
    }
    run = RunData.of(made(tmp_path / "run", tiny(), scores=[None] * 4, **extra))
    body = noise(by_environment([run])).body
    band = drawn(body, "band")
    assert len(band) == 8
    assert {y for x, y in band if x in (500, 750, 1000)} >= {0}
    assert 1000 in {y for _, y in band}
    assert 'class="band c1"' in body


@given(st.integers(2, 5), st.integers(2, 40), st.integers(0, 10_000))
def test_the_mean_and_its_error_by_definition(seeds, n, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(seeds, n))
    found = mean_of([Curve(np.arange(float(n)), row) for row in values])
    for i in range(n):
        column = [float(v) for v in values[:, i]]
        mean = sum(column) / seeds
        spread = math.sqrt(sum((v - mean) ** 2 for v in column) / (seeds - 1))
        assert found.curve.y[i] == pytest.approx(mean)
        assert found.high[i] - mean == pytest.approx(spread / math.sqrt(seeds))
        assert mean - found.low[i] == pytest.approx(spread / math.sqrt(seeds))


def test_where_a_seed_has_no_value_the_mean_has_none():
    x = np.arange(4.0)
    whole, holed = np.ones(4), np.array([1.0, np.nan, 1.0, 1.0])
    found = mean_of([Curve(x, whole), Curve(x, holed)])
    assert np.isnan(found.curve.y[1])
    assert np.isfinite(found.curve.y[[0, 3]]).all()


def test_seeds_of_other_lengths_are_averaged_where_all_of_them_are():
    short = Curve(np.array([10.0, 20.0]), np.array([1.0, 1.0]))
    long = Curve(np.array([10.0, 20.0, 30.0]), np.array([3.0, 3.0, 3.0]))
    found = mean_of([short, long])
    assert found.curve.x[-1] == 20
    assert found.curve.y[-1] == pytest.approx(2)


# Escaping


def test_what_is_not_markup_is_escaped_once():
    assert el("p", "a < b", title='"') == '<p title="&quot;">a &lt; b</p>'
    assert el("p", el("b", "&")) == "<p><b>&amp;</b></p>"
    assert escape("\x00\x1b[2J\ud800") == "��[2J?"
    assert isinstance(escape("x"), Html)
    assert "<td>&lt;i&gt;</td>" in table(["h"], [["<i>"]], "t")


def test_hostile_names_from_files_stay_text(tmp_path):
    # An id with control characters is refused.
    config = tiny(env_id="".join(c for c in HOSTILE if c.isprintable()))
    folder = made(tmp_path / "run <b>&", config)
    write_json(
        folder / "machine.json", {"cpu": HOSTILE, "cores": 1, "versions": {HOSTILE: "1"}}
    )
    write_json(folder / "eval.json", {"policy": {"mean": 1.0, HOSTILE: 2}})
    text = page_of([folder])
    body = text.partition("<body>")[2].partition("<script>")[0]
    assert "<script" not in body
    assert "<img" not in body
    assert "<b>&" not in body
    assert "&lt;script&gt;" in body
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_page_forbids_the_network_and_every_script_but_its_own(tmp_path):
    text = page_of([made(tmp_path / "run", tiny())])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "connect-src" not in policy
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:)?//""", text)
    assert ' style="' not in text  # the policy would refuse it
    assert not re.search(r"\son\w+=", text.partition("<body>")[2].partition("<script>")[0])


# Reading


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'{"interactions": 1, "score": null}\n{"interactions": 2, "sc')
    columns = Columns(file)
    columns.refresh()
    assert columns.rows == 1
    with file.open("ab") as end:
        end.write(b'ore": 3.5}\n')
    columns.refresh()
    assert columns.rows == 2
    assert columns.last("score") == 3.5
    assert np.isnan(columns["score"][0])


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[1]",
        '{"score": 1}',
        '{"interactions": "x"}',
        '{"interactions": NaN}',
        '{"interactions": 1, "score": true}',
        "[" * 100_000,
        '{"interactions": 1' + "0" * 400 + "}",
    ],
    ids=range(8),
)
def test_a_damaged_line_is_an_error_that_names_it(tmp_path, line):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"interactions": 1}\n' + line + "\n")
    with pytest.raises(StorageFailure, match=r"metrics.jsonl: line 2 is not a row of numbers"):
        Columns(file).refresh()


def test_a_file_that_was_cut_back_is_read_anew(tmp_path):
    file = tmp_path / "metrics.jsonl"
    rows = [json.dumps({"interactions": i, "score": i}) + "\n" for i in range(10)]
    file.write_text("".join(rows))
    columns = Columns(file)
    columns.refresh()
    file.write_text("".join(rows[:4]))
    columns.refresh()
    assert columns.rows == 4
    resumed = [json.dumps({"interactions": i, "score": -float(i), "new": 1}) for i in range(20)]
    file.write_text("\n".join(resumed) + "\n")  # longer than before, and another run's
    columns.refresh()
    assert columns.rows == 20


def test_rows_on_which_a_phase_did_not_run_are_no_gaps(tmp_path):
    sigma = [1.0, ..., ..., ..., 3.0]
    s = [1.0, ..., 1.0, ..., 1.0]
    extra = {"noise__policy__sigma": sigma, "noise__policy__s": s}
    run = RunData.of(made(tmp_path / "run", tiny(), scores=[None] * 5, **extra))
    x, y = run.metrics.when_due("noise/policy/sigma")
    assert x.tolist() == [64, 192, 320]
    assert y[[0, 2]].tolist() == [1.0, 3.0]
    assert np.isnan(y[1])  # measured, and nothing could be said


# Groups and sections


def test_seeds_become_one_group_and_other_settings_another(tmp_path):
    one = tiny()
    two = tweak(one, **{"policy.sgd.epochs": 1})
    folders = [
        made(tmp_path / "a", one, 1),
        made(tmp_path / "b", one, 0),
        made(tmp_path / "c", two, 0),
        made(tmp_path / "d", tiny("ppo"), 0),
    ]
    found = by_environment([RunData.of(folder) for folder in folders])["CartPole-v1"]
    assert [group.name for group in found] == [
        "DNA policy.sgd.epochs=2",
        "DNA policy.sgd.epochs=1",
        "PPO",
    ]
    assert [[run.seed for run in group.runs] for group in found] == [[0, 1], [0], [0]]
    assert len({group.color for group in found}) == 3
    lines = lines_of(found[:1], "score")
    assert [line.kind for line in lines] == ["seed", "seed", "mean"]
    assert lines[-1].band is not None


def test_differences_from_the_preset_are_listed_and_nothing_else(tmp_path):
    config = tweak(for_environment("CartPole-v1"), **{"policy.sgd.epochs": 7})
    run = RunData.of(made(tmp_path / "run", config))
    body = settings(by_environment([run])).body
    changes = body.partition("<details>")[0]
    assert "cartpole.dna" in changes
    assert re.findall(r"<td><code>([^<]*)</code>", changes) == ["policy.sgd.epochs"]
    assert "<td>7</td>" in changes


def test_without_a_preset_the_settings_stand_alone(tmp_path):
    config = tiny(env_id="CartPole-v1")
    config = config.model_copy(update={"phases": config.phases[:2]})
    assert preset_of(config) is None
    assert preset_of(tiny(env_id=None)) is None
    body = settings(by_environment([RunData.of(made(tmp_path / "run", config))])).body
    assert "Differs" not in body
    assert "returns.gamma" in body


def test_the_preset_itself_differs_in_nothing(tmp_path):
    run = RunData.of(made(tmp_path / "run", for_environment("CartPole-v1")))
    assert "Equal to the preset" in settings(by_environment([run])).body


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1.0, "1.0"), (0, "0"), (1, "1"), (None, "off"), (True, "on"),
     (2048, "2,048"), ({"start": 0.1, "end": 0.0}, "0.1 → 0.0"), (["a", "b"], "a, b")],
)  # fmt: skip
def test_a_setting_is_written_as_it_is(value, text):
    assert written(value) == text


def test_sections_without_anything_in_them_are_left_out(tmp_path):
    _, parts = run_parts([RunData.of(made(tmp_path / "run", tiny(), scores=[]))])
    ids = [part.id for part in parts]
    assert ids == ["head", "nav", "settings", "runs"]


def test_a_large_run_makes_a_small_page(tmp_path):
    rng = np.random.default_rng(0)
    loss = rng.normal(size=20_000).tolist()
    folder = made(tmp_path / "run", tiny(), scores=loss, policy__loss=loss, value__loss=loss)
    text = page_of([folder])
    assert len(text) < 150_000


def test_folders_that_hold_runs_are_read_in_order_of_their_seeds(tmp_path):
    for seed in (10, 2, 1):
        made(tmp_path / f"seed{seed}", tiny(), seed)
    (tmp_path / "notes").mkdir()
    assert [path.name for path in find_runs(tmp_path)] == ["seed1", "seed2", "seed10"]
    with pytest.raises(BadInput, match="no run here"):
        find_runs(tmp_path / "notes")


# Experiments


def test_an_experiments_page(tmp_path):
    made(tmp_path / "run", tiny())
    png = b"\x89PNG\r\n\x1a\n" + bytes(20)
    (tmp_path / "figure.png").write_bytes(png)
    (tmp_path / "table.md").write_text(
        "Score\n\n| arm | score |\n|---|--:|\n| **x** | 1\\|2 |\n"
    )
    run = {"study": "main", "arm": HOSTILE, "env": "CartPole-v1", "seed": 0, "score": 1.5}
    tree = {
        "name": "fig04", "alias": "epochs", "title": f"Epochs {HOSTILE}", "scale": "small",
        "proxy": True, "covers": ["fig:epochs"], "missing": 1,
        "runs": [run | {"folder": "run"}, run | {"folder": "gone", "seed": 1}],
        "verdicts": [{"id": "C035", "claim": "more is worse", "status": "not held",
                      "effect": "+1 %", "note": "proxy", "paper": "12"}],
        "figures": ["figure.png"], "tables": ["table.md"],
    }  # fmt: skip
    write_json(tmp_path / "experiment.json", tree)
    text = page_of([tmp_path])
    body = text.partition("<body>")[2].partition("<script>")[0]
    for words in ("proxy: not the paper&#x27;s games", "C035", "not held", "more is worse",
                  "data:image/png;base64,", "<strong>x</strong>", "1|2", "fig:epochs",
                  "1 folder of them deleted", "1 not finished"):  # fmt: skip
        assert words in body, words
    assert "<script" not in body
    assert "onerror=&quot;" in body
    ids = [part.id for part in experiment_parts(ExperimentFolder.of(tmp_path))[1]]
    assert ids == ["head", "nav", "verdicts", "figures", "tables", "learning", "runs"]


def test_an_experiment_names_what_failed_and_which_run_is_which(tmp_path):
    run = {"study": "main", "arm": "DNA", "env": "CartPole-v1", "seed": 0, "score": 1.5}
    tree = {
        "name": "fig04", "title": "Epochs", "missing": 2,
        "runs": [run | {"folder": "gone", "digest": "3f2a9c01d4e5"}],
        "failed": [f"PPO in CartPole-v1, seed 1: {HOSTILE}", "PPO in CartPole-v1, seed 2: no"],
    }  # fmt: skip
    write_json(tmp_path / "experiment.json", tree)
    parts = {part.id: part.html for part in experiment_parts(ExperimentFolder.of(tmp_path))[1]}
    assert "2 runs failed" in parts["head"]
    runs = parts["runs"]
    assert "<code>3f2a9c01d4e5</code>" in runs
    assert "PPO in CartPole-v1, seed 1: &lt;script&gt;" in runs
    assert "PPO in CartPole-v1, seed 2: no" in runs
    # Read without opening anything.
    assert runs.index("seed 2: no") < runs.index("<details>")


def test_an_experiment_of_which_every_run_failed_still_says_so(tmp_path):
    tree = {"name": "fig04", "title": "Epochs", "failed": ["PPO in CartPole-v1, seed 1: no"]}
    write_json(tmp_path / "experiment.json", tree)
    text = page_of([tmp_path])
    assert "1 run failed" in text
    assert "PPO in CartPole-v1, seed 1: no" in text
    assert "All 0 runs" not in text


def test_a_small_figure_is_not_blown_up(tmp_path):
    for name, width in (("small.png", 220), ("large.png", 900)):
        size = width.to_bytes(4) + (300).to_bytes(4)
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + size)
    tree = {"name": "a", "title": "b", "figures": ["small.png", "large.png"]}
    write_json(tmp_path / "experiment.json", tree)
    shown = re.findall(r'<figure class="([^"]*)">.*?alt="b: (\w+)', page_of([tmp_path]))
    assert shown == [("picture small", "small"), ("picture", "large")]


@pytest.mark.parametrize("name", ["../secret.png", "/etc/x.png", "a\0.png", "notes.txt"])
def test_an_experiment_cannot_name_files_outside_of_it(tmp_path, name):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\nsecret")
    write_json(folder / "experiment.json", {"name": "a", "title": "b", "figures": [name]})
    with pytest.raises(StorageFailure):
        page_of([folder])


def test_a_file_that_is_no_experiment_is_one_line(tmp_path):
    write_json(tmp_path / "experiment.json", {"name": "a", "title": "b", "runs": [{"arm": 1}]})
    with pytest.raises(StorageFailure, match=r"experiment.json: not an experiment \(runs.0"):
        page_of([tmp_path])


def test_markdown_is_escaped_before_it_is_read():
    text = markdown("# A `b` <i>\n| a |\n|---|\n| <x> |\n\nplain\n| no table", "t")
    assert "<h3>A <code>b</code> &lt;i&gt;</h3>" in text
    assert "&lt;x&gt;" in text
    assert "<i>" not in text
    assert "<p>plain</p>" in text
    assert "<p>| no table</p>" in text


# Numbers and colors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (markup.number(14.0812), "14.1"),
        (markup.number(-0.01443), "−0.0144"),
        (markup.number(1240.3), "1,240"),
        (markup.number(2.13e-5), "2.13e−5"),
        (markup.number(None), "–"),
        (markup.short(300_000), "300 k"),
        (markup.short(1_500_000), "1.5 M"),
        (markup.duration(245), "4 min 05 s"),
        (markup.duration(7800), "2 h 10 min"),
        (markup.duration(float("inf")), "–"),
        (markup.size(41_200), "41 kB"),
        (markup.percent(0.374), "37 %"),
        (markup.percent(0.0374), "3.7 %"),
    ],
)
def test_numbers_for_people(text, expected):
    assert text == expected


def themes():
    """(light, dark): the style's names and their colors."""
    style = _resource("style.css")
    light, _, dark = style.partition("prefers-color-scheme: dark")
    pattern = r"--([\w-]+): (#[0-9a-f]{6});"
    first = dict(re.findall(pattern, light))
    return first, first | dict(re.findall(pattern, dark))


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_text_stands_out(theme):
    for ink in ("ink", "soft", "link"):
        for ground in ("page", "paper"):
            assert contrast(theme[ink], theme[ground]) >= 4.5
    for ink in ("good", "bad", "busy"):
        assert contrast(theme[ink], theme[f"{ink}-paper"]) >= 4.5
    assert contrast(theme["ink"], theme["line"]) >= 4.5


def test_curves_have_the_colors_of_the_plots():
    light, dark = themes()
    names = [f"c{i}" for i in range(len(COLORS))]
    assert [light[name] for name in names] == [color.lower() for color in COLORS]
    assert all(contrast(dark[name], dark["paper"]) >= 4.5 for name in names)


def test_the_document_is_the_same_for_the_same_files(tmp_path):
    folder = made(tmp_path / "run", tiny())
    assert page_of([folder]) == page_of([folder])
    assert document("t", []).startswith("<!doctype html>")
