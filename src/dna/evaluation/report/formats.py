"""Numbers for people: short, with as many digits as say something, and a real minus."""

import math
from collections.abc import Sequence
from itertools import pairwise

_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def number(value: float | None, digits: int = 3) -> str:
    """A measured value: 14.1, −0.0144, 1,240, 2.1e−5."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e9 or size < 1e-3:
        return minus(_exponent(value, digits - 1))
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return minus(text.rstrip("0").rstrip(".") if "." in text else text)


def count(value: float) -> str:
    """Something counted: 300,000."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Something counted, where there is little room: 300 k, 1.5 M."""
    for unit, name in _UNITS:
        if abs(value) >= max(unit, 1e4):
            return minus(f"{value / unit:.3g}{name}")
    return minus(f"{value:,.0f}")


def duration(seconds: float) -> str:
    """28 s, 4 min 05 s, 2 h 10 min, 3 d 4 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(count: int) -> str:
    """Bytes: 41 kB, 3.2 MB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            scaled = count / unit
            return f"{scaled:.{0 if scaled >= 10 else 1}f} {name}"
    return f"{count} bytes"


def percent(share: float) -> str:
    """0.374 → 37 %; small shares keep a digit."""
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"


def minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "−")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Evenly spaced ticks, all with the same unit and digits."""
    top = max((abs(tick) for tick in ticks), default=0.0)
    if top == 0 or top < 1e-3 or top >= 1e12:
        return ["0" if tick == 0 else minus(_short_exponent(tick)) for tick in ticks]
    unit, name = next((pair for pair in _UNITS if top >= max(pair[0], 1e4)), (1.0, ""))
    step = min((b - a for a, b in pairwise(ticks)), default=top)
    scaled = [tick / unit for tick in ticks]
    places = next((p for p in range(12) if _exact(scaled, p, step / unit)), 3)
    return [
        "0" if abs(t) < step * 1e-6 else minus(f"{t / unit:,.{places}f}{name}") for t in ticks
    ]


def log_label(tick: float) -> str:
    """A tick of a logarithmic axis."""
    if 1e-3 <= tick < 1e4:
        return f"{tick:,.12g}"
    return short(tick) if 1e4 <= tick < 1e12 else minus(_short_exponent(tick))


def _exact(values: Sequence[float], places: int, step: float) -> bool:
    return all(abs(round(v, places) - v) < abs(step) * 1e-3 for v in values)


def _exponent(value: float, places: int) -> str:
    mantissa, _, power = f"{value:.{places}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def _short_exponent(value: float) -> str:
    mantissa, _, power = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"
