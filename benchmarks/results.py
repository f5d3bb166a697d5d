"""Write the tables, figures and verdicts of finished experiments to docs/results.md.

`python benchmarks/results.py --take reproductions/tab04-small …` first copies the results of an
experiment to `results/<name>-<scale>.json` and `docs/img/<name>-<scale>*.png`. Without `--take`
the document is only generated again from the stored results. A test checks that it is current.
"""

import argparse
import io
import json
import re
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from dna.common.storage import write, write_json
from dna.paper.claims.verdicts import COMPUTED
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.plan import SCALES, Limits
from dna.paper.reproduce import current_verdicts, verdict_rows, verdicts
from dna.paper.results import Results
from dna.paper.tables import head, markdown, tables
from dna.runs.reproducibility import describe

BEGIN, END = "<!-- experiments -->", "<!-- /experiments -->"
KEPT, IMAGES, DOCUMENT = Path("results"), Path("docs/img"), Path("docs/results.md")


def take(folder: Path) -> None:
    """Store the results of an experiment, without paths of the machine it ran on."""
    tree = json.loads((folder / "experiment.json").read_text())
    tree["hardware"] = sorted({hardware(Path(run["folder"])) for run in tree["runs"]})
    for run in tree["runs"]:
        del run["folder"]
    cells = [json.loads(path.read_text()) for path in folder.glob("toy/*.json")]
    if cells:
        tree["toy_hours"] = sum(cell["seconds"] for cell in cells) / 3600
        # Results of the toy problem do not record the machine: run --take on the same one.
        tree["hardware"] = [described(describe(torch.device("cpu"), None))]
    tree["rows"] = {name: (folder / name).read_text() for name in tree["tables"]}
    name = name_of(tree)
    write_json(KEPT / f"{name}.json", tree)
    for picture in tree["figures"]:
        data = smaller((folder / picture).read_bytes())
        write(IMAGES / image(name, picture), data)


def hardware(run: Path) -> str:
    """`AMD EPYC, 2 cores, cpu; torch 2.13.0, Python 3.11.7`; empty if not recorded."""
    path = run / "machine.json"
    return described(json.loads(path.read_text())) if path.is_file() else ""


def described(found: dict[str, Any]) -> str:
    """Return the entries of `machine.json` that the speed depends on."""
    where = f"{found['cpu']}, {found['cores']} cores, {found.get('gpu') or found['device']}"
    return f"{where}; torch {found['versions']['torch']}, Python {found['python']}"


def smaller(data: bytes) -> bytes:
    """Reduce a PNG to 128 colors, which is enough for a line plot."""
    if not data.startswith(b"\x89PNG"):
        return data
    buffer = io.BytesIO()
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.quantize(128).save(buffer, format="PNG", optimize=True)
    return min(data, buffer.getvalue(), key=len)


def name_of(tree: dict[str, Any]) -> str:
    """Return the name of stored results, such as `fig13-small` or `fig13-small-2seeds`."""
    return f"{tree['name']}-{tree['scale']}{Limits(**tree.get('cut', {}))}"


def image(name: str, picture: str) -> str:
    """Return the file name of a picture in docs/img."""
    return f"{name}{'' if picture == 'figure.png' else f'-{Path(picture).stem}'}.png"


def command(tree: dict[str, Any]) -> str:
    """Return the command that repeats the experiment."""
    words = [f"dna reproduce {tree['alias']} --scale {tree['scale']}"]
    words += [f"--{key} {value}" for key, value in tree.get("cut", {}).items() if value]
    return " ".join(words)


def kept() -> list[dict[str, Any]]:
    """Return all stored results in the paper's order; of one experiment, the best one first."""
    order = [one.name for one in EXPERIMENTS]
    found = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*-*.json"))]
    found.sort(key=lambda tree: (order.index(tree["name"]), rank(tree)))
    return [renewed(tree) for tree in found]


def rank(tree: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key: the paper's scale first, complete before limited ones, then the larger."""
    cut, interactions = tree.get("cut", {}), sum(run["interactions"] for run in tree["runs"])
    return (
        -SCALES.index(tree["scale"]),
        any(cut.values()),
        tree["missing"] > 0,
        -interactions,
        -(cut.get("seeds") or 0),
    )


def renewed(tree: dict[str, Any]) -> dict[str, Any]:
    """Compute verdicts and tables of the toy problem again, which needs no runs."""
    extra = tree.get("extra", {})
    if "toy" not in extra:
        return tree
    limits = Limits(**tree.get("cut", {}))
    found = Results(experiment(tree["name"]), tree["scale"], (), 0, limits, extra)
    rows = {f"{name}.md": head(found, name) + markdown(r) for name, r in tables(found).items()}
    return tree | {"verdicts": current_verdicts(tree), "rows": rows}


def section(tree: dict[str, Any]) -> str:
    """Return the section of one experiment: command, caveats, verdicts, tables, figures."""
    name = name_of(tree)
    lines = [f"### {tree['title']}", f"```console\n{command(tree)}\n```"]
    caption = tree.get("caption") or ("proxy: MinAtar, not the paper's games" * tree["proxy"])
    if caption:
        lines.append(f"**{caption[0].upper()}{caption[1:]}.**")
    lines += [answers(tree["verdicts"])] if tree["verdicts"] else []
    lines += [size(tree)] if size(tree) else []
    # The caption above applies to all tables, so their own captions are removed.
    bold = re.compile(r"^\*\*.*\*\*$\n*", re.MULTILINE)
    for file, text in tree["rows"].items():
        lines += [f"*{Path(file).stem.replace('_', ' ')}*", bold.sub("", text)]
    for picture in tree["figures"]:
        title = f"{tree['title']}, {Path(picture).stem}"
        lines.append(f"![{title}](img/{image(name, picture)})")
    return "\n\n".join(line.strip() for line in lines)


def answers(rows: list[dict[str, str]]) -> str:
    """Return the table of claims and verdicts of one experiment."""
    cells = [
        {"claim": f"{row['id']}: {_cell(row['claim'])}"} | _verdict(row) | _found(row)
        for row in rows
    ]
    return markdown(cells).replace("--:", "---")


def size(tree: dict[str, Any]) -> str:
    """Return a line with runs, seeds, hours, hardware and the number of missing runs."""
    runs = list({run["digest"]: run for run in tree["runs"]}.values())  # studies may share runs
    parts = []
    if runs:
        longest = max(run["interactions"] for run in runs)
        hours = sum(run["seconds"] or 0.0 for run in runs) / 3600
        seeds = sorted({run["seed"] for run in runs if "seed" in run})
        parts.append(f"{len(runs)} runs of up to {longest:,} interactions")
        parts += [f"seeds {', '.join(map(str, seeds))}"] if seeds else []
        parts.append(f"{hours:.1f} hours of runs")
    if "toy_hours" in tree:
        parts.append(f"{tree['toy_hours']:.1f} hours of training")
    parts += [one for one in tree.get("hardware", []) if one]
    missing = f"; **{tree['missing']} planned runs were not made**" if tree["missing"] else ""
    return f"{'; '.join(parts)}{missing}." if parts else ""


def not_run(trees: list[dict[str, Any]]) -> str:
    """List the experiments that were not run at all, or not at the paper's size."""
    known = {tree["name"]: tree for tree in reversed(trees)}  # the first one wins
    lines = []
    for one in EXPERIMENTS:
        tree = known.get(one.name)
        if not one.studies and not one.extra:
            continue
        if tree is None:
            lines.append(f"* {one.title} (`{one.alias}`): not run at any scale.")
        elif tree["scale"] != "paper" or any(tree.get("cut", {}).values()):
            lines.append(f"* {one.title} (`{one.alias}`): not run at the paper's size.")
    return "### Not run\n\n" + "\n".join(lines)


def claims(trees: list[dict[str, Any]]) -> str:
    """Return the verdicts on all claims, including those that need no runs."""
    names = [tree["name"] for tree in trees]
    seen: dict[str, dict[str, str]] = {}
    for tree in trees:  # the first one of an experiment wins
        several = names.count(tree["name"]) > 1
        for row in tree["verdicts"]:
            seen.setdefault(row["id"], _sourced(row, tree) if several else row)
    for one in EXPERIMENTS:
        for row in verdict_rows(verdicts(Results(one, "small", ()))):
            seen.setdefault(row["id"], row)
    rows = [seen[claim] for claim in sorted(seen)]
    counts = {
        s: sum(r["status"] == s for r in rows) for s in ("held", "not held", "not tested")
    }
    head = ", ".join(f"{count} {status}" for status, count in counts.items())
    cells = [
        {"claim": row["id"]} | _verdict(row) | {"the paper": _cell(row["claim"])} | _found(row)
        for row in rows
    ]
    table = markdown(cells).replace("--:", "---")
    return f"### Verdicts\n\n{len(rows)} claims: {head}.\n\n{table}"


def _sourced(row: dict[str, str], tree: dict[str, Any]) -> dict[str, str]:
    """Add the source to the note of a verdict, unless the verdict needs no runs."""
    words = [row["note"]] + [f"from {name_of(tree)}"] * (row["note"] != COMPUTED)
    return row | {"note": "; ".join(filter(None, words))}


def _verdict(row: dict[str, str]) -> dict[str, str]:
    status = row["status"]
    return {"verdict": status if status == "not tested" else f"**{status}**"}


def _found(row: dict[str, str]) -> dict[str, str]:
    return {"found": _cell("; ".join(filter(None, (row["effect"], row["note"]))))}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def document(text: str) -> str:
    """Return the document with its generated part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    trees = kept()
    parts = [*(section(tree) for tree in trees), not_run(trees), claims(trees)]
    made = "\n\n".join(parts)
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


def main() -> None:
    """Store new results, then write the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--take", type=Path, nargs="*", default=[])
    for folder in parser.parse_args().take:
        take(folder)
    write(DOCUMENT, document(DOCUMENT.read_text()).encode())


if __name__ == "__main__":
    main()
