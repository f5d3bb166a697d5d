"""What ranks share out and add up, in worlds of threads: the real ones are in integration."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from dna.algorithm.compiled_step import check_ranks
from dna.algorithm.engine import EagerStep, run_phase
from dna.algorithm.episodes import RankScores, Scores
from dna.algorithm.returns import explained_variance, normalized
from dna.algorithm.rollout import Replay
from dna.common.errors import BadInput, RanksApart, StorageFailure
from dna.common.process import Stop
from dna.common.storage import read_folder
from dna.config import SGD, Policy
from dna.distributed.collectives import (
    check_replicas,
    fail_together,
    gather_lines,
    on_rank_zero,
    stop_requested,
    sum_over_ranks,
    write_together,
)
from dna.distributed.launch import Launch, check_divides, launched
from dna.distributed.shard import Share
from dna.distributed.world import SOLO, error_from_code, join
from dna.envs import Step
from dna.networks.batch import Experience, minibatches
from dna.networks.frames import JoinedRollouts
from dna.networks.networks import FlatWeights
from dna.networks.normalizers import RewardNormalizer, RunningMoments
from dna.runs.setup import build_networks
from helpers import environment, tiny


class Meeting:
    """Where the threads of a world hand over what they have."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=20)
        self.table = [None] * size

    def exchange(self, rank, thing):
        self.table[rank] = thing
        self.barrier.wait()
        found = list(self.table)
        self.barrier.wait()
        return found


class Threads:
    """A rank that is a thread."""

    local_rank = 0

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size
        self.local_size = meeting.size

    def sum_(self, x):
        x.copy_(sum(self.meeting.exchange(self.rank, x.clone())))

    def gather(self, x):
        return self.meeting.exchange(self.rank, np.array(x))

    def gather_bytes(self, data):
        return self.meeting.exchange(self.rank, data)

    def report(self, error):
        self.meeting.barrier.abort()


def on_ranks(size, work):
    """`work(world)` on every rank; what each returns."""
    meeting = Meeting(size)
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, Threads(meeting, rank)) for rank in range(size)]
        return [future.result() for future in futures]


# ── who has which rows ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_row_is_on_one_rank_and_columns_come_together_again(size):
    agents, steps = 6, 5
    column = torch.arange(steps * agents, dtype=torch.float32)
    order = torch.randperm(len(column), generator=torch.Generator().manual_seed(0))

    def work(world):
        share = Share(world, agents)
        here = column.view(steps, agents)[:, share.own].reshape(-1)
        assert torch.equal(share.part(column), here)
        assert torch.equal(share.whole(here), column)
        return here[share.rows(order)]  # the numbers that these rows have in the run

    found = on_ranks(size, work) if size > 1 else [work(SOLO)]
    assert sorted(torch.cat(found).tolist()) == column.tolist()
    for part in found:  # in the order of the shuffle
        places = [order.tolist().index(int(x)) for x in part]
        assert places == sorted(places)


@pytest.mark.parametrize("kind", ["rollout", "replay"])
def test_mini_batches_are_the_rows_of_one_rank_shared_out(kind):
    agents, steps, rollouts, size = 4, 6, 1 if kind == "rollout" else 3, 8

    def experience(share):
        replay = Replay(rollouts)
        for number in range(rollouts):
            ids = torch.arange(steps * agents, dtype=torch.float32) + number * steps * agents
            ids = share.part(ids)
            columns = {"v_targ": ids, "weight": (ids % 5 != 0).float()}
            replay.add(Experience(ids[:, None], columns, share))
        found = replay.experience(rollouts)
        if kind == "rollout":
            assert isinstance(found.obs, JoinedRollouts)
            return Experience(found.obs[:], found.columns, share)
        return found

    def walk(world):
        share = Share(world, agents)
        rng = np.random.default_rng(3)
        return [mb.gather() for mb in minibatches(experience(share), size, rng)]

    whole, parts = walk(SOLO), on_ranks(2, walk)
    assert len(whole) == len(parts[0]) == len(parts[1]) == steps * agents * rollouts // size
    for mb, *own in zip(whole, *parts, strict=True):
        rows = [part["obs"][part["portion"] > 0, 0].tolist() for part in own]
        real = mb["obs"][mb["weight"] > 0, 0].tolist()
        assert sorted(rows[0] + rows[1]) == sorted(real)
        assert sum(float(part["portion"].sum()) for part in own) == pytest.approx(1.0)
        for part in own:
            assert torch.equal(part["obs"][:, 0], part["v_targ"])


def test_agents_must_divide():
    check_divides(8, 2)
    with pytest.raises(BadInput, match="agents: given 9, must be a multiple of the 2 ranks"):
        check_divides(9, 2)
    with pytest.raises(BadInput, match="agents: given 9"):
        on_ranks(2, lambda world: Share(world, 9))


# ── gradients ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [32, 2])  # of 2 rows a rank often has none
def test_a_phase_on_ranks_moves_the_weights_as_on_one(rows):
    config = tiny("dna")
    phase = Policy(sgd=SGD(epochs=1, minibatch=rows, learning_rate=1e-3))
    agents, steps = 4, 16
    rng = np.random.default_rng(0)
    data = {
        "obs": torch.from_numpy(rng.normal(size=(64, 4)).astype(np.float32)),
        "action": torch.from_numpy(rng.integers(0, 2, size=(64, 1))),
        "log_prob": torch.full((64, 1), -0.7),
        "advantage": torch.from_numpy(rng.normal(size=64).astype(np.float32)),
        "v_targ": torch.zeros(64),
        "weight": torch.from_numpy((rng.random(64) > 0.2).astype(np.float32)),
    }
    assert len(data["obs"]) == agents * steps
    with_env = environment(config)

    def learn(world):
        share = Share(world, agents)
        with lock:  # torch's seed is one for all threads
            networks = build_networks(config, 0, with_env, torch.device("cpu"))
        weights = FlatWeights(networks)
        step = EagerStep(phase, networks, weights, 8, world=world)
        own = Experience.of({name: share.part(column) for name, column in data.items()})
        own = Experience(own.obs, own.columns, share)
        metrics = run_phase(phase, networks, step, own, np.random.default_rng(7), 0.0)
        return weights.theta, weights.gradient, metrics

    lock = threading.Lock()
    (theta, gradient, metrics), parts = learn(SOLO), on_ranks(2, learn)
    assert torch.equal(parts[0][0], parts[1][0])  # to the bit
    assert parts[0][2] == parts[1][2]
    for name, value in metrics.items():
        assert parts[0][2][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    torch.testing.assert_close(parts[0][1], gradient, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(parts[0][0], theta, rtol=1e-4, atol=1e-5)
    with_env.close()


# ── statistics ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_statistics_of_ranks_are_those_of_all_samples(kind):
    rng = np.random.default_rng(1)
    batches = [(rng.random((6, 3)) * 200).astype(kind) for _ in range(5)]

    def work(world):
        moments = RunningMoments((3,))
        for number, batch in enumerate(batches):
            own = batch[world.rank * 3 : world.rank * 3 + 3] if world.size > 1 else batch
            if number == 2 and world.size > 1:  # all samples are on the second rank
                own = batch[:0] if world.rank == 0 else batch
            moments.update(own, world)
        return moments

    one, (first, second) = work(SOLO), on_ranks(2, work)
    for name, value in first.state().items():
        assert np.array_equal(value, second.state()[name])
        np.testing.assert_allclose(value, one.state()[name], rtol=1e-12)
        if kind == np.uint8:  # sums of whole numbers
            assert np.array_equal(value, one.state()[name])


def test_rewards_are_scaled_alike_on_all_ranks():
    rng = np.random.default_rng(2)
    rewards = rng.normal(size=(20, 4)).astype(np.float32)
    done, valid = rng.random((20, 4)) < 0.1, rng.random((20, 4)) < 0.9

    def work(world):
        own = Share(world, 4).own
        normalizer = RewardNormalizer(4 // world.size, 0.9, 5.0, world=world)
        words = zip(rewards[:, own], done[:, own], valid[:, own], strict=True)
        return np.stack([normalizer(*step) for step in words])

    np.testing.assert_allclose(np.concatenate(on_ranks(2, work), axis=1), work(SOLO), rtol=1e-6)


def test_whole_columns_decide_normalization_and_explained_variance():
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, generator=rng), torch.randn(24, generator=rng)
    weight = (torch.rand(24, generator=rng) > 0.3).float()

    def work(world):
        share = Share(world, 4)
        columns = {name: share.part(c) for name, c in (("x", x), ("y", y), ("weight", weight))}
        data = Experience(columns["x"], columns, share)
        explained = explained_variance(*(share.whole(columns[n]) for n in columns))
        return share.whole(data.over_all(normalized, "x", "weight")), explained

    for found, explained in on_ranks(2, work):
        assert torch.equal(found, normalized(x, weight))  # to the bit
        assert explained == explained_variance(x, y, weight)


# ── scores ──────────────────────────────────────────────────────────────────────────────────


def test_episodes_are_counted_in_the_order_of_one_rank():
    rng = np.random.default_rng(5)
    steps, agents = 40, 6
    reward = rng.normal(size=(steps, agents)).astype(np.float32)
    done, valid = rng.random((steps, agents)) < 0.2, rng.random((steps, agents)) < 0.9

    def play(scores, own):
        rows = []
        for t in range(steps):
            ends = done[t, own]
            step = Step(reward[t, own], reward[t, own], ends, ends, valid[t, own], {})
            scores.add(step, count=t > 3)  # the first steps are a warm-up
            if t % 12 == 11 or t == steps - 1:
                scores.settle()
                rows.append((scores.interactions, scores.episodes, scores.score, scores.take()))
        return rows

    def work(world):
        share = Share(world, agents)
        return play(RankScores(share), share.own)

    expected = play(Scores(agents), slice(None))
    assert len(expected[-1][3]) > 3
    assert on_ranks(3, work) == [expected] * 3


# ── agreements ──────────────────────────────────────────────────────────────────────────────


def test_the_first_decides_or_refuses_for_all():
    answers = on_ranks(2, lambda world: on_rank_zero(world, lambda: [world.rank, "x"]))
    assert answers == [[0, "x"]] * 2

    def refuse(world):
        def decide():
            assert world.rank == 0
            raise BadInput("no")

        with pytest.raises(BadInput, match=r"^no$"):
            on_rank_zero(world, decide)
        return True

    assert on_ranks(2, refuse) == [True, True]


def test_what_fails_on_one_rank_fails_on_all():
    def work(world):
        def own():
            if world.rank == 1:
                raise StorageFailure("the disk of rank 1")
            return world.rank

        with pytest.raises(StorageFailure, match="the disk of rank 1"):
            fail_together(world, own)
        return fail_together(world, lambda: world.rank)

    assert on_ranks(2, work) == [0, 1]


def test_sums_lines_and_signals_are_of_all_ranks():
    def work(world):
        stop = Stop()
        assert stop_requested(world, stop) is None
        if world.rank == 1:
            stop.asked = "SIGTERM"
        return (
            sum_over_ranks(world, world.rank + 1),
            gather_lines(world, ["a", str(world.rank)]),
            stop_requested(world, stop),
        )

    assert on_ranks(2, work) == [(3, ["a", "0", "1"], "SIGTERM")] * 2


def test_a_rank_that_is_not_alike_is_named_on_all():
    def work(world):
        tensors = {"same": torch.ones(3), "moments": torch.full((2,), 1.0 + 1e-7 * world.rank)}
        alike = {"a": torch.ones(3), "b": torch.zeros(2)}
        order = alike if world.rank == 0 else dict(reversed(alike.items()))
        check_replicas(world, order, 4)
        with pytest.raises(RanksApart, match=r"^iteration 5: rank 1 .*\(moments\)"):
            check_replicas(world, tensors, 5)
        return True

    assert all(on_ranks(2, work))


def test_a_folder_is_written_by_all_ranks_or_by_none(tmp_path):
    def work(world):
        write_together(world, tmp_path / "a", {f"{world.rank}": b"x" * world.rank}, {})
        missing = tmp_path / "none" / "rank"  # a name that cannot be made in the folder
        name = "ok" if world.rank == 0 else str(missing)
        with pytest.raises(StorageFailure):
            write_together(world, tmp_path / "b", {name: b"y"}, {})

    on_ranks(2, work)
    assert read_folder(tmp_path / "a") == {"0": b"", "1": b"x"}
    assert read_folder(tmp_path / "a", {"1"}) == {"1": b"x"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# ── how it was started ──────────────────────────────────────────────────────────────────────


def test_torchruns_variables_are_read():
    said = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    said |= {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert launched(said) == Launch(3, 4, 1, 2)
    assert launched({"WORLD_SIZE": "4"}) == Launch()  # some scheduler's, not torchrun's
    with pytest.raises(BadInput, match="RANK: given 4"):
        launched(said | {"RANK": "4"})
    with pytest.raises(BadInput, match="WORLD_SIZE: given 'two'"):
        launched(said | {"WORLD_SIZE": "two"})


def test_a_process_alone_is_a_world_of_one():
    with join() as world:
        assert (world.rank, world.size) == (0, 1)
        x = torch.ones(2)
        world.sum_(x)
        assert x.tolist() == [1.0, 1.0]
        assert world.gather(np.array([1])) == [np.array([1])]
        assert world.gather_bytes(b"x") == [b"x"]


def test_an_error_keeps_its_kind_on_its_way_to_other_ranks():
    for kind in (BadInput, StorageFailure, RanksApart):
        again = error_from_code(kind.exit_code, "text")
        assert type(again) is kind
        assert str(again) == "text"


@pytest.mark.parametrize(
    ("changes", "compile", "words"),
    [
        ({"policy.normalize_advantage": "minibatch"}, "auto", "policy.normalize_advantage"),
        ({"noise": {"b_small": 8, "samples": 2}}, "auto", "noise"),
        ({}, "on", "--compile"),
        ({"agents": 5, "horizon": 64}, "auto", "agents: given 5"),
    ],
)
def test_what_ranks_cannot_do_exactly_is_refused(changes, compile, words):
    config, world = tiny("dna", **changes), Threads(Meeting(2), 0)
    with pytest.raises(BadInput, match=words):
        check_ranks(config, compile, world)
    check_ranks(config, compile, SOLO)
