"""Display an agent in notebooks: a small HTML table with its learning curve.

Nothing is loaded from the network. Text inherits the page's color, so that it is readable on
light and dark backgrounds.
"""

from html import escape
from typing import Any

WIDTH, HEIGHT, PAD = 220, 56, 3
#: Points of a curve: one per pixel is enough.
MOST = 220


def card(algorithm: str, environment: str, seed: int, history: list[dict[str, Any]]) -> str:
    """Return the table and curve of a training log."""
    last = history[-1] if history else {}
    score = last.get("score")
    rows = {
        "algorithm": algorithm,
        "environment": environment,
        "seed": str(seed),
        "interactions": f"{last.get('interactions', 0):,}",
        "episodes": f"{last.get('episodes', 0):,}",
        "score": "–" if score is None else f"{score:,.2f}",
    }
    cells = "".join(
        f"<tr><th style='{_CELL};opacity:.65;font-weight:400'>{escape(name)}</th>"
        f"<td style='{_CELL}'>{escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    points = [
        (row["interactions"], row["score"]) for row in history if row["score"] is not None
    ]
    return (
        "<div style='display:flex;gap:1.5em;align-items:center;color:inherit;"
        "background:transparent'>"
        f"<table style='border-collapse:collapse;background:transparent'>{cells}</table>"
        f"{curve(points)}</div>"
    )


_CELL = "text-align:left;padding:.1em .6em;background:transparent;color:inherit"


def curve(points: list[tuple[float, float]]) -> str:
    """Return the score over interactions as SVG; empty for fewer than two points."""
    if len(points) < 2:
        return ""
    points = [*points[:: max(1, len(points) // MOST)], points[-1]]
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    x_span = (max(xs) - min(xs)) or 1.0
    y_span = (max(ys) - min(ys)) or 1.0
    places = []
    for x, y in points:
        across = PAD + (x - min(xs)) / x_span * (WIDTH - 2 * PAD)
        down = HEIGHT - PAD - (y - min(ys)) / y_span * (HEIGHT - 2 * PAD)
        places.append(f"{across:.1f},{down:.1f}")
    line = " ".join(places)
    label = f"score from {ys[0]:,.2f} to {ys[-1]:,.2f}"
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
        f"aria-label='{label}'><title>{label}</title>"
        f"<line x1='{PAD}' y1='{HEIGHT - PAD}' x2='{WIDTH - PAD}' y2='{HEIGHT - PAD}' "
        "stroke='currentColor' opacity='.25'/>"
        f"<polyline points='{line}' fill='none' stroke='#3b8fd6' stroke-width='1.8' "
        "stroke-linejoin='round'/></svg>"
    )
