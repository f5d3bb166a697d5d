"""Fuzz the targets: `PYTHONPATH=tools:tests python -m fuzz [TARGET …] --minutes 20`."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fuzz.session import MEMORY, Progress, fuzz, read_state, save_finding, write_state
from torture.code_version import ROOT, code_version

NAMES = ("run", "safetensors", "sb3", "overrides", "sweep")
#: Seconds that one case may take.
HANG = 30.0
#: Seconds until the first case: imports, and a small run to start from.
START = 300.0


def main() -> int:
    """Fuzz the selected targets, several at a time, and print the figures."""
    parser = argparse.ArgumentParser(description="Fuzz what is read from files and arguments.")
    parser.add_argument("targets", nargs="*", default=list(NAMES), help=", ".join(NAMES))
    parser.add_argument("--minutes", type=float, default=20.0, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/fuzz")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [name for name in args.targets if name not in NAMES]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; choose from {', '.join(NAMES)}")
    if args.child is not None:
        fuzz(args.targets[0], args.folder / args.targets[0], args.child)
        return 0
    code = code_version()
    with ThreadPoolExecutor(args.jobs) as pool:
        work = {
            name: pool.submit(_target, name, args.folder, 60 * args.minutes, code)
            for name in args.targets
        }
        results = {}
        for name, future in work.items():
            results[name] = future.result()
            if args.json is not None:
                _write(args.json, results)
    print(table(results))
    return 1 if any(_bad(result) for result in results.values()) else 0


def _write(path: Path, results: dict[str, Any]) -> None:
    old = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    merged = old | results
    ordered = {name: merged[name] for name in NAMES if name in merged}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def _bad(result: dict[str, Any]) -> bool:
    return bool(result["crashes"] or result["hangs"] or result["over_2_gb"])


def _target(name: str, root: Path, seconds: float, code: str) -> dict[str, Any]:
    """Fuzz one target until its time is over; go on with what an earlier call began.

    Figures of other code are not continued, but its corpus is used.
    """
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    if read_state(folder).get("code") != code:
        (folder / "state.json").unlink(missing_ok=True)
        for path in (folder / "findings").glob("*"):
            path.unlink()
        write_state(folder, read_state(folder) | {"code": code})
    while (left := seconds - read_state(folder)["seconds"]) > 1:
        _child(name, root, left)
    state = read_state(folder)
    return {
        "cases": state["cases"],
        "minutes": round(state["seconds"] / 60, 1),
        "crashes": len(state["findings"]),
        "hangs": state["hangs"],
        "memory_mb": round(state["memory"] / 2**20),
        "over_2_gb": int(state["memory"] > MEMORY),
        "corpus": len(list((folder / "corpus").iterdir())),
        "code": code,
    }


def _child(name: str, root: Path, seconds: float) -> None:
    """Run a process that fuzzes, and watch it: it may hang, be killed or end by itself."""
    folder = root / name
    (folder / "progress").unlink(missing_ok=True)
    words = [sys.executable, "-m", "fuzz", name, "--folder", str(root), "--child", str(seconds)]
    begun = time.time()
    memory = Path("/dev/shm")
    # libFuzzer ends the process without cleaning up: its temporary files are removed here.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        env = os.environ | {"TMPDIR": place}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                words, stdout=log, stderr=log, env=env, start_new_session=True
            )
        try:
            hung = _watch(process, folder, name)
        finally:
            _end(process)
    state = read_state(folder)
    progress = folder / "progress"
    number, data = Progress(progress, create=False).current() if progress.exists() else (0, b"")
    text = (folder / "log").read_text(errors="replace")[-20_000:]
    if hung and number:
        state["hangs"] += 1
        save_finding(folder, f"hang-{int(begun)}", data, text)
        state["cases"] += 1
    elif process.returncode != 0:
        kind = "not-started" if not number else "ended"
        state["findings"].append(f"{kind}-{int(begun)}")
        save_finding(folder, f"{kind}-{int(begun)}", data, f"exit {process.returncode}\n{text}")
    if not number:  # nothing was done: do not try for ever
        state["seconds"] += seconds
    write_state(folder, state)


def _watch(process: subprocess.Popen[bytes], folder: Path, name: str) -> bool:
    """Wait until the process ends; return whether it hung in one case."""
    progress: Progress | None = None
    last, since, said = 0, time.monotonic(), time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        if progress is None:
            with contextlib.suppress(OSError, ValueError):
                progress = Progress(folder / "progress", create=False)
        number = progress.current()[0] if progress is not None else 0
        now = time.monotonic()
        if number != last:
            last, since = number, now
        elif now - since > (HANG if number else START):
            os.kill(process.pid, signal.SIGABRT)  # faulthandler prints the stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            return True
        if now - said > 60:
            said = now
            state = read_state(folder)
            figures = {k: state[k] for k in ("cases", "hangs")} | {
                "minutes": round(state["seconds"] / 60, 1),
                "crashes": len(state["findings"]),
            }
            print(f"{time.strftime('%H:%M:%S')} {name} {figures}", file=sys.stderr, flush=True)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def table(results: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| target | cases | minutes | crashes | hangs | memory |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, r in results.items():
        cells = f"{r['cases']:,} | {r['minutes']} | {r['crashes']} | {r['hangs']}"
        lines.append(f"| {name} | {cells} | +{r['memory_mb']} MB |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
