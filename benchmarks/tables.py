"""The JSON of `dna bench` as the Markdown tables of docs/performance.md.

python benchmarks/tables.py benchmarks/results/*.json
"""

import json
import sys
from pathlib import Path
from typing import Any


def table(found: dict[str, Any]) -> str:
    """One family."""
    lines = [
        "| case | who | interactions/s (range) | ours is … × | of limit | memory + workers |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for case in found["cases"]:
        for who, rate in case["rates"].items():
            ours = who == "ours"
            ratio = case["ratios"].get(who)
            limit = {key: 100 * value for key, value in case["of_limit"].items()}
            memory = case["memory"] / 1e9
            cells = [
                case["name"] if ours else "",
                "**ours**" if ours else who,
                f"{rate['median']:,.0f} ({rate['min']:,.0f}–{rate['max']:,.0f})",
                "" if ratio is None else _spread(ratio, "{:.2f}"),
                _spread(limit, "{:.0f}") + " %" if ours else "",
                f"{memory:.2f} + {case['workers'] / 1e9:.2f} GB" if ours else "",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beside(found: dict[str, Any]) -> str:
    """Time of the paper's algorithms, and cases set beside a peer's other work."""
    lines = []
    timed = [case for case in found["cases"] if case["paper_hours"]]
    if timed:
        hours = timed[0]["paper_hours"]
        lines += ["| algorithm | time, DNA being 4 (range) | paper |", "|---|--:|--:|"]
        for case in timed:
            time = {key: hours * value for key, value in case["time"].items()}
            row = f"| {case['name']} | {_spread(time, '{:.2f}')} | {case['paper_hours']} |"
            lines.append(row)
    for case in found["cases"]:
        for who, ratio in case["beside"].items():
            lines.append(f"{case['name']} is {_spread(ratio, '{:.2f}')} times {who}'s PPO.")
    return "\n".join(lines)


def _spread(numbers: dict[str, float], form: str) -> str:
    middle, low, high = (form.format(numbers[key]) for key in ("median", "min", "max"))
    return f"{middle} ({low}–{high})"


def split(found: dict[str, Any]) -> str:
    """Where the time goes."""
    parts = dict.fromkeys(part for case in found["cases"] for part in case["split"])
    head = "| case | " + " | ".join(parts) + " |"
    lines = [head, "|---" + "|--:" * len(parts) + "|"]
    for case in found["cases"]:
        cells = [f"{100 * case['split'].get(part, 0):.1f}" for part in parts]
        lines.append(f"| {case['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables of every file that has them."""
    names = sys.argv[1:] or sorted(map(str, Path("benchmarks/results").glob("*.json")))
    for name in names:
        found = json.loads(Path(name).read_text())
        if "cases" in found:
            print(f"\n## {found['family']}\n\n{table(found)}\n\n{split(found)}")
            print(f"\n{beside(found)}")


if __name__ == "__main__":
    main()
