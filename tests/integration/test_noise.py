"""`dna train --noise` and `dna noise RUN`: live, and of a saved run."""

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch

from dna.cli import main
from dna.noise_reading import Ratio, Reading, Spread
from dna.noise_report import advice, nearest_divisor
from dna.textual import noise_words
from helpers import tiny

ROOT = Path(__file__).parent.parent.parent
SMALL = ["policy.sgd.minibatch=64", "value.sgd.minibatch=64", "distil.sgd.minibatch=64"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise") / "run"
    words = ["train", "CartPole-v1", "--interactions", "4096", "--noise", "--quiet"]
    assert main([*words, "--out", str(folder), "noise.every=2"]) == 0
    return folder


def hashes(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_saved_run_is_measured_and_not_changed(run, capsys):
    before = hashes(run)
    assert main(["noise", str(run), "--rollouts", "2", "--samples", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["phase"] for one in found] == ["policy", "value", "distil"]
    assert all(one["advice"] for one in found)
    assert all(one["s"] > 0 for one in found)
    assert hashes(run) == before
    assert main(["noise", str(run), "--rollouts", "2", "--samples", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found  # the same dice every time


def test_the_table_names_phases_and_advice(run, capsys):
    assert main(["noise", str(run), "--rollouts", "1", "--samples", "4"]) == 0
    text = capsys.readouterr().out
    for word in ("policy", "value", "distil", "B_simple", "mini-batch"):
        assert word in text


def test_ppg_is_measured_over_what_it_replays(tmp_path, capsys):
    words = ["train", "CartPole-v1", "--algo", "ppg", "--interactions", "2048", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["noise", str(tmp_path / "run"), "--rollouts", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["phase"] for one in found] == ["policy", "value", "aux"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--b-small", "100000"], "b_small = 100000"),
        (["--rollouts", "0"], "rollouts"),
    ],
)
def test_what_cannot_be_measured_is_one_line(run, words, said, capsys):
    assert main(["noise", str(run), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_folder_without_a_run_is_one_line(tmp_path, capsys):
    assert main(["noise", str(tmp_path)]) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def reading(s, error=0.1, g2=1.0, error_s=0.1):
    """|𝒢|² and 𝒮 with standard errors."""
    ratio = Ratio(g2, s, Spread(error**2, error_s**2, 0.0))
    return Reading(ratio, Ratio(g2, abs(s), ratio.spread), 0.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            reading(1e6),
            "below the interval, noisy steps: try policy.sgd.minibatch=64; even all",
        ),
        (
            reading(2.0),
            "above the interval, smaller mini-batches would cost little: try policy",
        ),
        (reading(20.0), "16 is about right: within 4 × of it"),
        (reading(20.0, 0.2), "16 is about right: within the interval"),
        # B_simple alone would ask for 64 rows, but the interval, 37 to 280, comes within reach.
        (reading(70.0, 0.45), "16 is about right: within 4 × of it"),
        (reading(20.0, 0.6), "|𝒢|² may be zero: noise drowns the gradient and nothing is adv"),
        (reading(140.0, 0.6), "|𝒢|² may be zero, yet B_simple is at least 64: noisy steps, t"),
        (reading(5.0, 1.0, -1.0, 1.0), "|𝒢|² ≤ 0: noise drowns the gradient"),
        (reading(1e4, 1.0, -1.0, 1.0), "|𝒢|² ≤ 0, yet B_simple is at least"),
        (reading(-2.0), "𝒮 ≤ 0: noise too small to tell, nothing is advised"),
        (reading(-2.0, 1.0, -1.0), "𝒮 ≤ 0: noise too small to tell, nothing is advised"),
    ],
)
def test_advice_is_what_the_interval_supports(given, words):
    policy = tiny("dna").phases[0]
    assert advice(policy, given, 64).startswith(words)


def test_a_minibatch_that_is_advised_divides_the_batch():
    for rows in (64, 16_384, 2048, 1000):
        for wanted in (2.0, 17.0, 300.0, 1e5):
            found = nearest_divisor(rows, wanted)
            assert rows % found == 0
            assert found >= 2
    assert nearest_divisor(16_384, 300.0) == 256


def test_the_display_says_what_it_knows():
    metrics = {"noise/policy/sigma": 220.5, "noise/policy/g2": 1.0, "noise/value/g2": -1.0}
    assert noise_words(metrics) == "σ policy 220  value ?"


def test_the_example_with_sb3_runs(capsys):
    text = (ROOT / "docs" / "noise.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    threads = torch.get_num_threads()
    names = {}
    exec(compile(code, "docs/noise.md", "exec"), names)
    torch.set_num_threads(threads)
    assert names["estimate"].b_big == 2048
    assert names["estimate"].s > 0
