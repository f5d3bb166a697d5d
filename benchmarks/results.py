"""Experiments that were really run → docs/results.md: tables, figures and verdicts.

`python benchmarks/results.py --take reproductions/tab04-small …` keeps what an experiment left
behind (`results/<name>-<scale>.json`, `docs/img/<name>-<scale>*.png`); without it, the document
is only written anew from what is kept. A test compares the two.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from dna.experiments import EXPERIMENTS
from dna.experiments.output import markdown, verdict_rows, verdicts
from dna.experiments.results import Results
from dna.storage import write, write_json

BEGIN, END = "<!-- experiments -->", "<!-- /experiments -->"
KEPT, IMAGES, DOCUMENT = Path("results"), Path("docs/img"), Path("docs/results.md")


def take(folder: Path) -> None:
    """Keep an experiment: no paths of the machine it ran on."""
    tree = json.loads((folder / "experiment.json").read_text())
    for run in tree["runs"]:
        del run["folder"]
    tree["rows"] = {name: (folder / name).read_text() for name in tree["tables"]}
    name = f"{tree['name']}-{tree['scale']}"
    write_json(KEPT / f"{name}.json", tree)
    for picture in tree["figures"]:
        own = "" if picture == "figure.png" else f"-{Path(picture).stem}"
        write(IMAGES / f"{name}{own}.png", (folder / picture).read_bytes())


def kept() -> list[dict[str, Any]]:
    """What was taken, in the paper's order."""
    order = [one.name for one in EXPERIMENTS]
    found = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*-*.json"))]
    return sorted(found, key=lambda tree: order.index(tree["name"]))


def section(tree: dict[str, Any]) -> str:
    """One experiment."""
    name = f"{tree['name']}-{tree['scale']}"
    lines = [f"### {tree['title']} (`dna reproduce {tree['alias']} --scale {tree['scale']}`)"]
    if tree["proxy"]:
        lines.append("**Proxy: MinAtar's games, not the paper's.**")
    runs = tree["runs"]
    if runs:
        longest = max(run["interactions"] for run in runs)
        hours = sum(run["seconds"] or 0.0 for run in runs) / 3600
        words = f"{len(runs)} runs of up to {longest:,} interactions, {hours:.1f} hours of runs"
        missing = (
            f"; **{tree['missing']} planned runs were not made**" if tree["missing"] else ""
        )
        cut = f" ({tree['limits']})" if tree.get("limits") else ""
        lines.append(f"{words}{cut}{missing}.")
    lines += list(tree["rows"].values())
    for picture in tree["figures"]:
        own = "" if picture == "figure.png" else f"-{Path(picture).stem}"
        lines.append(f"![{tree['title']}{own}](img/{name}{own}.png)")
    return "\n\n".join(line.strip() for line in lines)


def claims(trees: list[dict[str, Any]]) -> str:
    """All claims: of the experiments above, or as they are without runs."""
    seen = {row["id"]: row for tree in trees for row in tree["verdicts"]}
    for one in EXPERIMENTS:
        for row in verdict_rows(verdicts(Results(one, "small", ()))):
            seen.setdefault(row["id"], row)
    rows = [seen[claim] for claim in sorted(seen)]
    counts = {
        s: sum(r["status"] == s for r in rows) for s in ("held", "not held", "not tested")
    }
    head = ", ".join(f"{count} {status}" for status, count in counts.items())
    cells = [
        {
            "claim": row["id"],
            "verdict": f"**{row['status']}**"
            if row["status"] != "not tested"
            else "not tested",
            "the paper": _cell(row["claim"]),
            "found": _cell("; ".join(part for part in (row["effect"], row["note"]) if part)),
        }
        for row in rows
    ]
    table = markdown(cells).replace("--:", "---")
    return f"### Verdicts\n\n{len(rows)} claims: {head}.\n\n{table}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def document(text: str) -> str:
    """The document with its generated part as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    trees = kept()
    made = "\n\n".join([*(section(tree) for tree in trees), claims(trees)])
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


def main() -> None:
    """Take, then write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--take", type=Path, nargs="*", default=[])
    for folder in parser.parse_args().take:
        take(folder)
    write(DOCUMENT, document(DOCUMENT.read_text()).encode())


if __name__ == "__main__":
    main()
