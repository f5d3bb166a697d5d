"""Run the fault injection: `PYTHONPATH=tools:tests python -m torture [--only NAME,…]`."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torture import ground
from torture.configs import configs
from torture.corruption import corruption
from torture.endurance import endurance
from torture.environments import environment_faults
from torture.ground import Outcome
from torture.hostile import hostile
from torture.kills import kills
from torture.museum import museum
from torture.nonfinite import nonfinites
from torture.points import points, saves
from torture.preemption import preemption
from torture.races import races
from torture.ranks import ranks
from torture.rivals import rivals
from torture.sweep import sweep

#: Name → function that runs this part in a folder.
PARTS: dict[str, Callable[[Path], Outcome]] = {
    "kills": lambda root: kills(root, 300),
    "points": lambda root: points(root),
    "saves": lambda root: saves(root),
    "corruption": lambda root: corruption(root, flips=1000, sectors=200),
    "preemption": lambda root: preemption(root, 100),
    "environments": lambda root: environment_faults(root),
    "nonfinite": lambda root: nonfinites(root),
    "races": lambda root: races(root, rounds=20),
    "ranks": lambda root: ranks(root, 30),
    "hostile": lambda root: hostile(root),
    "configs": lambda root: configs(root, 1000),
    "sweep": lambda root: sweep(root),
    "museum": lambda root: museum(root),
    "rivals": lambda root: rivals(root, runs=20),
    "endurance": lambda root: endurance(root, 2000),
}


def main() -> int:
    """Run the selected parts and print the table."""
    parser = argparse.ArgumentParser(description="Inject faults and check that runs survive.")
    parser.add_argument("--only", default="", help="comma-separated: " + ", ".join(PARTS))
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(PARTS)
    ground.warm_up()
    outcomes: dict[str, Outcome] = {}
    for name in names:
        print(f"{time.strftime('%H:%M:%S')} {name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = PARTS[name](Path(folder))
        for note in outcomes[name].notes[:12]:
            print(f"    {note}", file=sys.stderr, flush=True)
        if args.json is not None:
            args.json.write_text(
                json.dumps({n: vars(o) for n, o in outcomes.items()}, indent=1)
            )
    print(table(outcomes))
    own = [outcome for name, outcome in outcomes.items() if name != "rivals"]
    return 1 if any(outcome.trouble for outcome in own) else 0


def table(outcomes: dict[str, Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = ["| what | tried | survived | lost | time |", "|---|--:|--:|--:|--:|"]
    for outcome in outcomes.values():
        cells = f"{outcome.tried:,} | {outcome.survived:,} | {outcome.lost}"
        lines.append(f"| {outcome.name} | {cells} | {outcome.seconds:.0f} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
