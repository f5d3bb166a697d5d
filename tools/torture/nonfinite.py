"""Non-finite numbers in every place where they can arise."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dna.runs.train
from dna.runs.train import Run
from torture.ground import Child, Outcome, Work, fingerprint, finish, shared_out, timed

AT = 5  # the iteration of the fault, after the first checkpoints
Place = tuple[str, Callable[[Run, float], None]]


def _weight(network: str, which: int) -> Place:
    def poison(run: Run, bad: float) -> None:
        found = [p for n, p in run.networks.named_parameters() if n.startswith(network)]
        with torch.no_grad():
            found[which].view(-1)[0] = bad

    return f"{network} weight {which}", poison


def _moment(phase: str, slot: str) -> Place:
    def poison(run: Run, bad: float) -> None:
        (state,) = run.learner.steps[phase].optimizer.state.values()
        state[slot][0] = bad

    return f"{phase} {slot}", poison


def _array(name: str, of: Callable[[Run], Any]) -> Place:
    def poison(run: Run, bad: float) -> None:
        array = of(run)
        array[np.unravel_index(0, array.shape)] = bad

    return name, poison


def _reward_m2(run: Run, bad: float) -> None:
    run.collector.reward_normalizer.moments.m2 = np.float64(bad)


PLACES: list[Place] = [
    _weight("policy", 0),
    _weight("policy", 1),
    _weight("policy", -1),
    _weight("value", 0),
    *(_moment(phase, "exp_avg") for phase in ("policy", "value", "distil")),
    *(_moment(phase, "exp_avg_sq") for phase in ("policy", "value", "distil")),
    _array("observation mean", lambda run: run.networks.normalizer.moments.mean),
    _array("observation m2", lambda run: run.networks.normalizer.moments.m2),
    ("reward m2", _reward_m2),
    _array("reward running", lambda run: run.collector.reward_normalizer.running),
    _array("state acted on", lambda run: run.collector.obs),
]  # fmt: skip
#: Columns that `estimate` computes.
COLUMNS = ("advantage", "v_targ", "log_prob")
PHASES = ("policy", "value", "distil")
#: Prefix of a case's name → the first affected quantity, which the message must name.
NAMED: dict[str, tuple[str, ...]] = {
    "policy weight": ("π's output", "distil/", "networks/policy"),
    "value weight": ("advantage", "value/", "networks/value"),
    "policy exp": ("policy/",),
    "value exp": ("value/",),
    "distil exp": ("distil/",),
    "observation": ("π's output", "observation/"),
    "reward": ("advantage", "reward/"),
    "state acted on": ("π's output",),
    **{name: (name,) for name in COLUMNS},
    **{f"loss of {name}": (f"{name}/",) for name in PHASES},
    "gradient": ("gradient_norm",),
}


def nonfinites(root: Path, most: int | None = None) -> Outcome:
    """Inject NaN and infinity in every place, and in three places where they are harmless."""
    work = Work("dna", "CartPole-v1")
    with timed("number that is not finite") as outcome:
        trouble = finish(work, root / "whole")
        assert not trouble, trouble
        expected = fingerprint(root / "whole")
        cases = [(n, b, _before(p, b)) for n, p in PLACES for b in (np.nan, np.inf)]
        cases += [(c, b, _column(c, b)) for c in COLUMNS for b in (np.nan, np.inf, -np.inf)]
        cases += [(f"loss of {p}", b, _loss(p, b)) for p in PHASES for b in (np.nan,)]
        cases += [("gradient", b, _gradient(b)) for b in (np.nan, np.inf)]
        step = 1 if most is None else max(1, len(cases) // most)

        def one(number: int, part: Outcome) -> None:
            name, bad, before = cases[number]
            _one(root / f"run{number}", work, f"{name} = {bad}", before, expected, part)

        shared_out(outcome, range(0, len(cases), step), one)
    return outcome


def _before(poison: Callable[[Run, float], None], bad: float) -> Callable[[], None]:
    def install() -> None:
        iterate = Run.iterate

        def poisoned(run: Run) -> dict[str, float]:
            if run.iteration == AT:
                poison(run, bad)
                run.networks.refresh()
            return iterate(run)

        Run.iterate = poisoned

    return install


def _column(name: str, bad: float) -> Callable[[], None]:
    def install() -> None:
        estimate, seen = dna.runs.train.estimate, [0]

        def poisoned(*words: Any) -> Any:
            experience, metrics = estimate(*words)
            seen[0] += 1
            if seen[0] == AT:
                experience.columns[name][3] = bad
            return experience, metrics

        dna.runs.train.estimate = poisoned

    return install


def _loss(phase: str, bad: float) -> Callable[[], None]:
    def install() -> None:
        import dna.algorithm.engine

        loss, seen = dna.algorithm.engine.loss, [0]

        def poisoned(settings: Any, *words: Any) -> Any:
            total, metrics = loss(settings, *words)
            seen[0] += settings.name == phase
            return (total * bad if seen[0] == 30 else total), metrics

        dna.algorithm.engine.loss = poisoned

    return install


def _gradient(bad: float) -> Callable[[], None]:
    def install() -> None:
        import dna.algorithm.engine

        clip, seen = dna.algorithm.engine.clip, [0]

        def poisoned(gradient: Any, limit: Any) -> Any:
            seen[0] += 1
            if seen[0] == 40:
                gradient[1] = bad
            return clip(gradient, limit)

        dna.algorithm.engine.clip = poisoned

    return install


def _one(
    folder: Path,
    work: Work,
    name: str,
    before: Callable[[], None],
    expected: dict[str, str],
    outcome: Outcome,
) -> None:
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"), before)
    code, newest = child.wait(60), child.newest()
    said = child.said()
    words = next(words for start, words in NAMED.items() if name.startswith(start))
    stopped = code == 4 and any(word in said for word in words) and "(iteration " in said
    dumped = (folder / "nonfinite.safetensors").is_file()
    trouble = finish(work, folder)
    same = not trouble and fingerprint(folder) == expected
    outcome.differing += not same
    outcome.count(
        stopped and dumped and same and newest > 0,
        f"{name}: exit {code}, dumped {dumped}, same {same}, {trouble or said[-200:]}",
    )
    shutil.rmtree(folder, ignore_errors=True)
