"""One run on two ranks under torchrun: kill random ranks, or inject a fault into one rank."""

import json
import shutil
from pathlib import Path

from ranked import CARTPOLE, HOW, computed, ended, exit_codes, finished, kill_ranks, started
from torture.ground import Outcome, dice, timed

#: Largest number of kills of one run.
EACH = 5
#: Fault of one rank → exit code of all ranks.
FAULTS = {"perturb": 7, "fail": 5, "nan": 4, "bug": 1, "hang": 5}


def ranks(root: Path, count: int, faults: tuple[str, ...] = tuple(FAULTS)) -> Outcome:
    """Kill ranks under `--max-restarts`, then inject one fault after another."""
    with timed("SIGKILL of a random rank under torchrun, or a fault of one rank") as outcome:
        whole = root / "whole"
        code, said = finished(2, _words(whole), root / "whole.log")
        assert code == 0, said
        expected, number = computed(whole), 0
        while outcome.tried < count:
            _killed(root / f"cut{number}", expected, count, outcome)
            number += 1
        outcome.notes.insert(0, f"{outcome.tried} kills in {number} runs")
        for what in faults:
            _fault(root / what, what, outcome)
    return outcome


def _words(folder: Path) -> list[str]:
    longer = [word.replace("=1536", "=6144") for word in CARTPOLE]
    return ["train", *longer, *HOW, "--checkpoint-every", "128", "--out", str(folder)]


def _killed(folder: Path, expected: dict[str, bytes], count: int, outcome: Outcome) -> None:
    log, most = folder.with_suffix(".log"), min(EACH, count - outcome.tried)
    words = [*_words(folder), "--resume"]
    with ended(started(2, words, log, restarts=most + 5)) as process:
        killed = kill_ranks(process, folder, most, dice(folder.name))
        code = process.wait(timeout=300)
    same = code == 0 and computed(folder) == expected
    outcome.add(killed, killed if same else 0)
    if not same:
        outcome.differing += 1
        outcome.notes.append(f"{folder.name}: exit {code}: {log.read_text()[-300:]}")
    shutil.rmtree(folder, ignore_errors=True)


def _fault(folder: Path, what: str, outcome: Outcome) -> None:
    """Check that all ranks end with one line and one exit code, and the checkpoint is valid."""
    # The check of restored environments would meet the mischief first, and say so in a line.
    log, words = folder.with_suffix(".log"), [*_words(folder), "--no-verify"]
    if what == "hang":
        words[words.index("--env-timeout") + 1] = "2"
    mischief = json.dumps({"what": what, "rank": 1})
    end, lines = finished(2, words, log, mischief)
    good = end != 0 and exit_codes(log) == {FAULTS[what]} and len(lines) == 1
    outcome.count(good, f"{what}: exit {end}, ranks {exit_codes(log)}, said {lines}")
