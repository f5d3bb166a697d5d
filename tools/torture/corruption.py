"""Damaged, foreign and incomplete checkpoints, which must be detected, named and not used."""

import json
import shutil
from pathlib import Path

from dna.common.errors import StorageFailure
from dna.common.storage import write_folder
from dna.runs import checkpoint
from torture.ground import SEED, Child, Outcome, Work, dice, timed
from torture.ground import finish as finished


def corruption(root: Path, flips: int, sectors: int, step: int = 1024) -> Outcome:
    """Truncate, flip bits and zero sectors of the newest checkpoint, or replace it."""
    work, folder = Work("dna", "CartPole-v1"), root / "run"
    with timed("damaged or foreign checkpoint") as outcome:
        trouble = finished(work, folder)
        assert not trouble, trouble
        newest = folder / "checkpoints" / checkpoint.names(folder)[-1]
        for path in sorted(newest.iterdir()):
            whole = path.read_bytes()
            for length in range(0, len(whole), step):
                _damaged(work, folder, path, whole[:length], outcome, f"cut to {length}")
            path.write_bytes(whole)
        _flip(work, folder, newest, flips, sectors, outcome)
        _strange(work, folder, newest, root, outcome)
        _none_left(work, folder, outcome)
    return outcome


def _damaged(
    work: Work, folder: Path, path: Path, data: bytes, outcome: Outcome, what: str
) -> None:
    path.write_bytes(data)
    _passed_over(work, folder, path.parent, outcome, f"{path.name} {what}")


def _passed_over(work: Work, folder: Path, bad: Path, outcome: Outcome, what: str) -> None:
    """Check that the previous checkpoint is used and the bad one is named."""
    saved = checkpoint.latest(folder, work.digest)
    named = saved is not None and any(str(bad) in reason for reason in saved.rejected)
    outcome.count(named and saved is not None and saved.path != bad, what)


def _flip(
    work: Work, folder: Path, newest: Path, flips: int, sectors: int, outcome: Outcome
) -> None:
    chance, files = dice("flips"), sorted(newest.iterdir())
    weights = [path.stat().st_size for path in files]
    for number in range(flips + sectors):
        # Small files are hit as often as the large one.
        path = chance.choice(files) if number % 2 else chance.choices(files, weights)[0]
        whole = path.read_bytes()
        data = bytearray(whole)
        if number < flips:
            bit = chance.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
        else:
            start = chance.randrange(len(data)) // 512 * 512
            data[start : start + 512] = bytes(len(data[start : start + 512]))
        if data != whole:
            _damaged(work, folder, path, bytes(data), outcome, f"change {number}")
        path.write_bytes(whole)


def _strange(work: Work, folder: Path, newest: Path, root: Path, outcome: Outcome) -> None:
    later = newest.with_name(f"{int(newest.name) + 64:012d}")
    # Intact and under the right name: only the digest shows that it belongs to another run.
    other = Work(work.algorithm, "CartPole-v1", interactions=int(later.name))
    trouble = finished(other, root / "other")
    assert not trouble, trouble
    shutil.copytree(root / "other" / "checkpoints" / later.name, later)
    _passed_over(work, folder, later, outcome, "another run's")
    shutil.rmtree(later)
    shutil.copytree(newest, later)
    _passed_over(work, folder, later, outcome, "under another name")
    manifest = json.loads((later / "manifest.json").read_text())
    (later / "manifest.json").write_text(json.dumps(manifest | {"format": 3}))
    _passed_over(work, folder, later, outcome, "of a newer version")
    shutil.rmtree(later)
    later.mkdir()
    _passed_over(work, folder, later, outcome, "an empty folder")
    later.rmdir()
    later.write_bytes(b"garbage")
    _passed_over(work, folder, later, outcome, "a file instead of a folder")
    later.unlink()
    write_folder(later, {"state.json": b"[]"}, {"digest": work.digest})
    _passed_over(work, folder, later, outcome, "with the wrong content")
    shutil.rmtree(later)
    later.symlink_to(newest)
    _passed_over(work, folder, later, outcome, "a link")
    later.unlink()
    shutil.copytree(newest, newest.with_name(".partial-0123"))
    saved = checkpoint.latest(folder, work.digest)
    outcome.count(saved is not None and saved.path == newest, "left over by a crash")


def _none_left(work: Work, folder: Path, outcome: Outcome) -> None:
    """Check that a run with only unusable checkpoints does not silently start from scratch."""
    (folder / "done").unlink()
    before = (folder / "metrics.jsonl").read_bytes()
    for name in checkpoint.names(folder):
        (folder / "checkpoints" / name / "state.json").write_bytes(b"")
    try:
        checkpoint.latest(folder, work.digest)
        refused = False
    except StorageFailure:
        refused = True
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
    code = child.wait()
    child.newest()
    kept = (folder / "metrics.jsonl").read_bytes() == before
    outcome.count(refused and code == 6 and kept, f"none left: exit {code}, seed {SEED}")
