"""A page in Debian's Chromium, headless, that remembers what went wrong."""

import os
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(
    not CHROMIUM.exists() and "CI" not in os.environ,
    reason=f"no {CHROMIUM}: `make browser` installs it where it may",
)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Not even a name is looked up.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
SCREENS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]

#: Texts whose contrast with what lies behind them is below 4.5.
FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *:not(script):not(title)")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const color = node.matches("svg text") ? style.fill : style.color;
    const [a, b] = [light(parse(color)), light(behind(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${node.tagName} ${node.textContent}`);
  }
  return faint;
}"""


class Tab:
    """A page that remembers what went wrong and what it asked for."""

    def __init__(self, browser, width, theme, **options):
        size = {"width": width, "height": 844}
        self.context = browser.new_context(viewport=size, color_scheme=theme, **options)
        self.page = self.context.new_page()
        self.errors, self.asked = [], []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def check(self, width, *starts, plots=5):
        """No error, nothing asked of anybody else, nothing beside the screen, all readable."""
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith((*starts, "data:"))] == []
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        assert self.page.evaluate(FAINT) == []
        drawn = self.page.locator("svg.plot:visible")
        assert drawn.count() >= plots
        assert all(box["width"] > 100 and box["height"] > 100 for box in boxes(drawn))


def boxes(locator):
    return [one.bounding_box() for one in locator.all()]
