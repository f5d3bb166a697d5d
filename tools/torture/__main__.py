"""Run the fault injection: `PYTHONPATH=tools:tests python -m torture [--only NAME,…]`."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture import ground
from torture.code_version import code_version
from torture.configs import configs
from torture.corruption import corruption
from torture.endurance import endurance
from torture.environments import environment_faults
from torture.ground import Outcome
from torture.hostile import hostile
from torture.kills import kills
from torture.logs import logs
from torture.museum import museum
from torture.nonfinite import nonfinites
from torture.points import points, saves
from torture.preemption import preemption
from torture.races import races
from torture.ranks import ranks
from torture.rivals import rivals
from torture.sweep import sweep
from torture.zoo import zoo

#: The part about another library: its losses are not counted as this package's.
RIVALS = "rivals"
#: Name → function that runs this part in a folder.
PARTS: dict[str, Callable[[Path], Outcome]] = {
    "kills": lambda root: kills(root, 300),
    "points": lambda root: points(root),
    "saves": lambda root: saves(root),
    "corruption": lambda root: corruption(root, flips=1000, sectors=200),
    "logs": lambda root: logs(root, each=60),
    "preemption": lambda root: preemption(root, 100),
    "environments": lambda root: environment_faults(root),
    "zoo": lambda root: zoo(root),
    "nonfinite": lambda root: nonfinites(root),
    "races": lambda root: races(root, rounds=20),
    "ranks": lambda root: ranks(root, 30),
    "hostile": lambda root: hostile(root),
    "configs": lambda root: configs(root, 1000),
    "sweep": lambda root: sweep(root),
    "museum": lambda root: museum(root),
    RIVALS: lambda root: rivals(root, runs=20),
    "endurance": lambda root: endurance(root, 2000),
}


def main() -> int:
    """Run the selected parts and print the table."""
    parser = argparse.ArgumentParser(description="Inject faults and check that runs survive.")
    parser.add_argument("--only", default="", help="comma-separated: " + ", ".join(PARTS))
    parser.add_argument(
        "--json", type=Path, help="write results here; its finished parts are not repeated"
    )
    parser.add_argument("--again", action="store_true", help="repeat finished parts too")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"--only: no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    campaign = Campaign(args.json)
    todo = [name for name in names if args.again or name not in campaign.current()]
    for name in names:
        if name not in todo:
            _say(f"{name}: finished before, with this code")
    if todo:
        ground.warm_up()
    for number, name in enumerate(todo, 1):
        _say(f"{name} ({number} of {len(todo)}) …")
        outcome = _run(name)
        for note in outcome.notes[:12]:
            print(f"    {note}", file=sys.stderr, flush=True)
        campaign.add(name, outcome)
    outcomes = {n: o for n, o in campaign.current().items() if n in names}
    print(table(outcomes))
    print(json.dumps(totals(outcomes)))
    own = [outcome for name, outcome in outcomes.items() if name != RIVALS]
    return 1 if any(outcome.trouble for outcome in own) else 0


def _run(name: str) -> Outcome:
    """Run one part; a part that cannot be completed has failed, and the others go on."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            return PARTS[name](Path(folder))
        except Exception as error:
            traceback.print_exc()
            outcome = Outcome(name)
            outcome.count(False, f"not completed: {type(error).__name__}: {error}"[:500])
            outcome.hangs += isinstance(error, subprocess.TimeoutExpired)
            outcome.seconds = time.perf_counter() - start
            return outcome


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Campaign:
    """The results so far, in a file that is written after every part.

    A part counts as finished if it ran with the code that is checked out now. Several processes
    may run different parts with one file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.code = code_version()
        self.parts: dict[str, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        if self.path is not None and self.path.exists():
            self.parts = json.loads(self.path.read_text()).get("parts", {})

    def current(self) -> dict[str, Outcome]:
        """Return the parts that ran with this code."""
        return {
            name: Outcome.from_json(self.parts[name])
            for name in PARTS
            if name in self.parts and self.parts[name]["code"] == self.code
        }

    def add(self, name: str, outcome: Outcome) -> None:
        """Record a part and write the file, with what others have added meanwhile."""
        self._read()
        self.parts[name] = {**outcome.to_json(), "code": self.code}
        place = re.escape(tempfile.gettempdir())  # of this machine, and gone by now
        notes = self.parts[name]["notes"]
        self.parts[name]["notes"] = [re.sub(rf"{place}/[^/\s]+/", "", note) for note in notes]
        if self.path is None:
            return
        parts = {n: self.parts[n] for n in PARTS if n in self.parts}
        tree = {"code": self.code, "totals": totals(self.current()), "parts": parts}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(tree, indent=1) + "\n")
        partial.replace(self.path)


def totals(outcomes: dict[str, Outcome]) -> dict[str, int]:
    """Add up all parts but the comparison with another library."""
    own = [outcome for name, outcome in outcomes.items() if name != RIVALS]
    names = ("tried", "survived", *ground.HARM)
    return {name: sum(getattr(outcome, name) for outcome in own) for name in names}


def table(outcomes: dict[str, Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = ["| what | tried | survived | harm | time |", "|---|--:|--:|--:|--:|"]
    for outcome in outcomes.values():
        cells = f"{outcome.tried:,} | {outcome.survived:,} | {sum(outcome.harm.values())}"
        lines.append(f"| {outcome.name} | {cells} | {outcome.seconds:.0f} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
