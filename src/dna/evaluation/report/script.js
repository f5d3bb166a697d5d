"use strict";
// Show values at the pointer, or by arrow keys. The page is complete without this script.
(() => {
  const scale = (text) => {
    const [low, high, log] = text.split(" ").map(Number);
    return log ? (f) => low * (high / low) ** f : (f) => low + (high - low) * f;
  };

  const format = (value) => {
    const size = Math.abs(value);
    if (size < 1e-12) return "0";
    if (size >= 1e3) return Math.round(value).toLocaleString("en").replace("-", "−");
    const text = size < 1e-3 ? value.toExponential(2) : value.toPrecision(3);
    return text.replace(/-/g, "−");
  };

  // "M12 30L14 31M20 40…" → [[12, 30], [14, 31], [20, 40], …]
  const points = (path) => {
    path.points ||= [...path.getAttribute("d").matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)].map(
      (found) => [Number(found[1]), Number(found[2])],
    );
    return path.points;
  };

  const nearest = (path, x) =>
    points(path).reduce((best, point) =>
      Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best,
    );

  const readout = (box) => {
    let rule = box.querySelector(".rule");
    if (!rule) {
      rule = document.createElement("div");
      rule.className = "rule";
      const text = document.createElement("div");
      text.className = "readout";
      box.append(rule, text);
    }
    return [rule, box.querySelector(".readout")];
  };

  const row = (path, value) => {
    const line = document.createElement("div");
    const dot = document.createElement("i");
    dot.className = path.getAttribute("class");
    const name = document.createElement("span");
    name.textContent = path.dataset.name;
    const number = document.createElement("b");
    number.textContent = format(value);
    line.append(dot, name, number);
    return line;
  };

  const show = (plot, fraction) => {
    const all = [...plot.querySelectorAll("path[data-name]")].filter((p) => points(p).length);
    const means = all.filter((path) => path.classList.contains("mean"));
    const paths = (all.length <= 8 ? [...means, ...all.filter((p) => !means.includes(p))] : means)
      .slice(0, 10);
    if (!paths.length) return;
    const [rule, text] = readout(plot.parentElement);
    const place = nearest(paths[0], fraction * 1000)[0];
    const x = scale(plot.dataset.x);
    const y = scale(plot.dataset.y);
    const head = document.createElement("div");
    head.className = "at";
    head.textContent = format(x(place / 1000));
    text.replaceChildren(
      head,
      ...paths.map((path) => row(path, y(1 - nearest(path, place)[1] / 1000))),
    );
    rule.style.left = `${place / 10}%`;
    text.style.left = place > 500 ? "auto" : `calc(${place / 10}% + 10px)`;
    text.style.right = place > 500 ? `calc(${100 - place / 10}% + 10px)` : "auto";
    plot.parentElement.classList.add("reading");
    plot.at = fraction;
  };

  const hide = (but) => {
    for (const box of document.querySelectorAll(".box.reading")) {
      if (box !== but) box.classList.remove("reading");
    }
  };

  const follow = (event) => {
    const box = event.target.closest?.(".box");
    hide(box);
    if (!box) return;
    const frame = box.getBoundingClientRect();
    const fraction = (event.clientX - frame.left) / frame.width;
    show(box.querySelector(".plot"), Math.min(1, Math.max(0, fraction)));
  };

  document.addEventListener("pointermove", follow);
  document.addEventListener("pointerdown", follow);
  document.documentElement.addEventListener("pointerleave", () => hide());
  document.addEventListener("focusin", (event) => {
    const plot = event.target.closest?.(".plot");
    if (plot && event.target.matches(":focus-visible")) show(plot, plot.at ?? 1);
  });
  document.addEventListener("focusout", () => hide());
  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot");
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!plot || !step) return;
    event.preventDefault();
    show(plot, Math.min(1, Math.max(0, (plot.at ?? 1) + step)));
  });

  // Charts take the keyboard focus only with this script, which handles their keys.
  window.reachable = (root) => {
    for (const plot of root.querySelectorAll(".plot")) plot.setAttribute("tabindex", "0");
  };
  window.reachable(document);
})();
