"""Write what benchmarks/results holds as tables to the documents that quote it.

python benchmarks/tables.py
"""

import json
from pathlib import Path
from typing import Any

from dna.common.storage import write

#: Documents that quote results.
DOCUMENTS = ("docs/performance.md", "docs/reliability.md")
#: Counters of the fault injection that must be 0.
HARM = ("lost", "differing", "executed", "hangs", "memory")


def table(found: dict[str, Any]) -> str:
    """Return the table of one benchmark family."""
    lines = [
        "| case | library | interactions/s (range) | speed-up | of limit | memory + workers |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for case in found["cases"]:
        for who, rate in case["rates"].items():
            ours = who == "ours"
            ratio = case["ratios"].get(who)
            limit = {key: 100 * value for key, value in case["of_limit"].items()}
            memory = case["memory"] / 1e9
            workers = f" + {case['workers'] / 1e9:.2f}" if case["workers"] else ""
            cells = [
                case["name"] if ours else "",
                "**ppo-dna**" if ours else who,
                f"{rate['median']:,.0f} ({rate['min']:,.0f}–{rate['max']:,.0f})",
                "" if ratio is None else _spread(ratio, "{:.2f}"),
                _spread(limit, "{:.0f}") + " %" if ours else "",
                f"{memory:.2f}{workers} GB" if ours else "",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def comparisons(found: dict[str, Any]) -> str:
    """Return the relative times of the paper's algorithms, and the speed-up over peers' PPO."""
    lines = []
    timed = [case for case in found["cases"] if case["paper_hours"]]
    if timed:
        hours = timed[0]["paper_hours"]
        lines += ["| algorithm | relative time, DNA = 4 (range) | paper |", "|---|--:|--:|"]
        for case in timed:
            time = {key: hours * value for key, value in case["time"].items()}
            row = f"| {case['name']} | {_spread(time, '{:.2f}')} | {case['paper_hours']} |"
            lines.append(row)
    for case in found["cases"]:
        for who, ratio in case["beside"].items():
            lines.append(
                f"{case['name']} is {_spread(ratio, '{:.2f}')} times as fast as {who}'s PPO."
            )
    return "\n".join(lines)


def _spread(numbers: dict[str, float], form: str) -> str:
    middle, low, high = (form.format(numbers[key]) for key in ("median", "min", "max"))
    return f"{middle} ({low}–{high})"


def split(found: dict[str, Any]) -> str:
    """Return the share of time of each part of an iteration."""
    parts = dict.fromkeys(part for case in found["cases"] for part in case["split"])
    head = "| case | " + " | ".join(parts) + " |"
    lines = [head, "|---" + "|--:" * len(parts) + "|"]
    for case in found["cases"]:
        cells = [f"{100 * case['split'].get(part, 0):.1f}" for part in parts]
        lines.append(f"| {case['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def seeds(found: dict[str, Any]) -> str:
    """Return the tables that compare one process per seed with batched weights."""
    lines = [
        "| | one seed | eight at once | time of eight single runs / eight at once |",
        "|---|--:|--:|--:|",
    ]
    for name, one in found.items():
        if "range" not in one:
            continue
        low, high = one["range"]
        gain = f"{one['eight_solo_runs_over_eight_at_once']:.2f} ({low:.2f}–{high:.2f})"
        times = f"{one['one_seed_seconds']:.0f} s | {one['eight_processes_seconds']:.0f} s"
        lines.append(f"| {name}, {one['interactions']:,} interactions | {times} | {gain} |")
    lines += ["", "One compiled update of the value network, in microseconds:", ""]
    lines += [
        "| | one seed, 1 thread | eight in one (`vmap`), 1 thread | 2 threads |",
        "|---|--:|--:|--:|",
    ]
    for name, one in found.items():
        cells = [
            f"{one[key]:,.0f}"
            for key in (
                "update_one_seed_us_1_threads",
                "update_eight_seeds_us_1_threads",
                "update_eight_seeds_us_2_threads",
            )
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth(found: dict[str, Any]) -> str:
    """Return the growth table, one row per setting."""
    lines = ["| | µs per interaction | peak memory, MB |", "|---|---|---|"]
    for key, sizes in found.items():
        costs = ", ".join(f"{size}: {one['microseconds']:.0f}" for size, one in sizes.items())
        memory = ", ".join(f"{size}: {one['memory'] / 1e6:.0f}" for size, one in sizes.items())
        lines.append(f"| `{key}` | {costs} | {memory} |")
    return "\n".join(lines)


def torture(found: dict[str, Any]) -> str:
    """Return the table of the fault injection, one row per part and the commit it ran on."""
    # The comparison with another library is described in the text.
    parts = {name: one for name, one in found["parts"].items() if name != "rivals"}
    lines = ["| fault | tried | survived | harm | code |", "|---|--:|--:|--:|---|"]
    for name, one in parts.items():
        harm = sum(one[key] for key in HARM)
        cells = f"{one['tried']:,} | {one['survived']:,} | {harm} | `{one['code'][:7]}`"
        lines.append(f"| {one['name']} (`{name}`) | {cells} |")
    tried, survived, harm = (
        sum(one[key] for one in parts.values() for key in keys)
        for keys in (("tried",), ("survived",), HARM)
    )
    lines.append(f"| all | {tried:,} | {survived:,} | {harm} | |")
    return "\n".join(lines)


def fuzz(found: dict[str, Any]) -> str:
    """Return the table of the fuzzers, one row per target."""
    lines = [
        "| target | inputs | minutes | crashes | hangs | memory |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        cells = f"{one['cases']:,} | {one['minutes']:.0f} | {one['crashes']} | {one['hangs']}"
        lines.append(f"| `{name}` | {cells} | +{one['memory_mb']} MB |")
    return "\n".join(lines)


#: Results that are no contest of libraries, by the name of their file.
SPECIAL = {"seeds": seeds, "growth": growth, "torture": torture, "fuzz": fuzz}


def blocks(folder: Path) -> dict[str, str]:
    """Return the name and Markdown of every result file that exists."""
    made = {}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        if path.stem in SPECIAL:
            made[path.stem] = SPECIAL[path.stem](found)
        elif "cases" in found:
            parts = [table(found), comparisons(found), "Percent of the time:", split(found)]
            made[path.stem] = "\n\n".join(part for part in parts if part)
    return made


def updated(text: str, made: dict[str, str]) -> str:
    """Return a document with the tables between their markers replaced."""
    for name, block in made.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin in text and end in text:
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def main() -> None:
    """Update the tables of all documents."""
    made = blocks(Path("benchmarks/results"))
    for document in DOCUMENTS:
        path = Path(document)
        write(path, updated(path.read_text(), made).encode())


if __name__ == "__main__":
    main()
