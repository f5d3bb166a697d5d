"""`dna train --noise` and `dna noise RUN`: live, and of a saved run."""

import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from dna import NoiseScale
from dna.algorithm.noise_scale import NoiseRatio, NoiseReading, Spread, pooled
from dna.cli import main
from dna.cli.progress import counting
from dna.config.overrides import tweak
from dna.paper.noise_report import advice, nearest_divisor
from dna.runs.text_progress import noise_words
from helpers import tiny

ROOT = Path(__file__).parents[3]
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
    ratio = NoiseRatio(g2, s, Spread(error**2, error_s**2, 0.0))
    return NoiseReading(ratio, NoiseRatio(g2, abs(s), ratio.spread), 0.0)


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
    assert advice(policy, given, 64, b_small=4).startswith(words)


@pytest.mark.parametrize("algo", ["dna", "ppo", "ppg"])
def test_less_lambda_is_advised_where_it_helps(algo):
    """Less λ_V raises σ_V (section 6.2), and distillation has no λ."""
    for phase in tiny(algo).phases:
        text = advice(phase, reading(1e9), 64)
        assert "more agents" in text
        assert ("less λ_π" in text) == (phase.kind in ("policy", "joint")), phase.name
        assert "less λ_V" not in text


@pytest.mark.parametrize(
    ("minibatch", "rows", "words"),
    [
        (128, 1024, "try value.sgd.minibatch=32, 4 times the steps at the same learning rate"),
        (256, 1000, "try value.sgd.minibatch=40, 6.4 times the steps"),
        (32, 1024, "none below 32 rows is advised"),
        (16, 1024, "none below 32 rows is advised"),
    ],
)
def test_no_minibatch_is_advised_that_is_smaller_than_those_measured(minibatch, rows, words):
    """B_simple is 2: advice for 8 rows in place of 128 was 16 times the steps, unsaid."""
    value = tweak(tiny("dna"), **{"horizon": 1024, "value.sgd.minibatch": minibatch}).phases[1]
    text = advice(value, reading(2.0), rows)
    assert text.startswith("above the interval, smaller mini-batches would cost little")
    assert words in text


def test_a_minibatch_that_is_advised_divides_the_batch():
    for rows in (64, 16_384, 2048, 1000):
        for wanted in (2.0, 17.0, 300.0, 1e5):
            found = nearest_divisor(rows, wanted)
            assert rows % found == 0
            assert found >= 2
    assert nearest_divisor(16_384, 300.0) == 256


def test_a_run_whose_folder_has_brackets_is_counted(monkeypatch, capsys):
    """On a terminal the folder's name is in the bar: it is no markup of Rich's."""
    monkeypatch.setattr(Console, "is_terminal", property(lambda console: True))
    with counting("measuring x[/b]c[red]", 2) as told:
        told(1)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "measuring x[/b]c[red]" in shown


def rollouts(rho, sigma, repeats=12, agents=128, steps=128, width=64):
    """B_simple as measured on rows whose noise is AR(1) along time; |G|² = 1, tr Σ = σ²."""
    rng, found = np.random.default_rng(0), []
    true = torch.zeros(width)
    true[0] = 1.0
    for number in range(repeats):
        noise = rng.standard_normal((steps, agents, width), np.float32)
        for t in range(1, steps):
            noise[t] = rho * noise[t - 1] + math.sqrt(1 - rho**2) * noise[t]
        rows = true + sigma / math.sqrt(width) * torch.from_numpy(noise.reshape(-1, width))
        weights = torch.zeros(width, requires_grad=True)
        found.append(
            NoiseScale.measure(
                lambda data, w=weights: (data @ w).mean(), [weights], rows, seed=number
            )
        )
    return pooled(found)


@pytest.mark.parametrize(
    ("rho", "sigma", "read", "g2"),
    [
        (0.0, 220.5, 220.5, 1.0),
        (0.5, 220.5, 84.0, 6.8),
        (0.9, 220.5, 31.0, 50.0),
        (0.5, 17.5, 17.2, 1.04),
        (0.9, 17.5, 15.3, 1.31),
    ],
)
def test_rows_that_are_alike_in_time_make_noise_read_low(rho, sigma, read, g2):
    """As docs/noise.md says: estimates have no bias for independent rows only.

    |G_big|² = |G|² + tr Σ / B · (1 + ρ) / (1 − ρ), nearly, and 𝒮 does not see it.
    """
    apart = 2 * rho * (1 - rho**128) / (128 * (1 - rho) ** 2)
    expected = 1 + sigma**2 / 128**2 * ((1 + rho) / (1 - rho) - apart - 1)
    assert (expected, sigma / math.sqrt(expected)) == pytest.approx((g2, read), rel=0.01)
    found = rollouts(rho, sigma)
    assert found.sigma == pytest.approx(read, rel=0.06)
    assert found.g2 == pytest.approx(expected, rel=0.12)
    text = (ROOT / "docs" / "noise.md").read_text()
    assert f"{read:g}" in text


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
