""" "All models have approximately 3.5 million parameters" (section 5), with 18 actions."""

import pytest
import torch

from dna.config.presets import preset
from dna.envs.specs import ActionSpec, ObservationSpec, Stack
from dna.networks.networks import Networks

OBS = ObservationSpec("image", (84, 84, 4), "uint8", Stack(108_000))
#: Convolutions 8×8/4, 4×4/2, 3×3/1 and a dense layer of 512, each with its biases.
ENCODER = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3136 * 512 + 512)
POLICY = ENCODER + (512 * 18 + 18) + (512 + 1)
VALUE = ENCODER + (512 + 1)
FAT = (4 * 64 * 64 + 64) + (64 * 16 * 128 + 128) + (128 * 9 * 128 + 128) + (6272 * 512 + 512)


def count(name: str) -> int:
    with torch.device("meta"):
        networks = Networks(preset(name), OBS, ActionSpec("categorical", (18,)))
    return sum(p.numel() for p in networks.parameters())


@pytest.mark.parametrize(
    ("name", "expected", "printed"),
    [
        ("tuned.dna", POLICY + VALUE, 3_378_516),
        ("tuned.ppg", POLICY + VALUE, 3_378_516),
        ("tuned.ppo", FAT + (512 * 18 + 18) + (512 + 1), 3_516_755),
        ("tuned.ppo_1x", POLICY, 1_693_875),
        ("tuned.ppo_basic", POLICY, 1_693_875),
        ("table1.ppo_orig", POLICY, 1_693_875),
    ],
)
def test_weights_are_those_of_the_encoders_and_heads(name, expected, printed):
    assert count(name) == expected == printed


def test_dna_and_ppo_2x_have_about_as_many():
    assert count("tuned.dna") == pytest.approx(3.5e6, rel=0.05)
    assert count("tuned.ppo") == pytest.approx(3.5e6, rel=0.05)
