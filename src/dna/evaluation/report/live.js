"use strict";
// Poll for changes every two seconds and replace only the parts that changed.
(() => {
  const page = document.getElementById("page");
  const status = document.getElementById("status");
  const STOPS = "summary, .plot, .scroll, a, video";
  let pointer = null;
  let shown = "";

  // Keep opened details open, tables scrolled and the keyboard focus in place.
  const replace = (old, fresh) => {
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    fresh.querySelectorAll("details").forEach((one, i) => (one.open = open[i] ?? false));
    const tables = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const stop = [...old.querySelectorAll(STOPS)].indexOf(document.activeElement);
    const at = document.activeElement?.at;
    old.replaceWith(fresh);
    window.reachable(fresh);
    fresh.querySelectorAll(".scroll").forEach((one, i) => (one.scrollLeft = tables[i] ?? 0));
    if (stop >= 0) {
      const again = fresh.querySelectorAll(STOPS)[stop];
      if (again) again.at = at;
      again?.focus({ preventScroll: true });
    }
  };

  const apply = (answer) => {
    const [x, y] = [scrollX, scrollY];
    answer.parts.forEach((part, i) => {
      let here = document.getElementById(part.id);
      if (part.html !== undefined) {
        const shell = document.createElement("template");
        shell.innerHTML = part.html;
        const fresh = shell.content.firstElementChild;
        if (here) replace(here, fresh);
        here = fresh;
      }
      if (here && page.children[i] !== here) {
        page.insertBefore(here, page.children[i] ?? null);
        window.reachable(here);
      }
    });
    while (page.children.length > answer.parts.length) page.lastElementChild.remove();
    if (scrollX !== x || scrollY !== y) scrollTo({ left: x, top: y, behavior: "instant" });
    document.title = answer.title;
    if (pointer) {
      const event = new PointerEvent("pointermove", { bubbles: true, ...pointer });
      document.elementFromPoint(pointer.clientX, pointer.clientY)?.dispatchEvent(event);
    }
  };

  const say = (text) => {
    if (text !== shown) status.textContent = shown = text;
    status.classList.toggle("lost", text.startsWith("No answer"));
  };

  const poll = async () => {
    let wait = 2000;
    if (!document.hidden) {
      try {
        const have = [...page.children].map((part) => part.dataset.hash).join(".");
        const answer = await fetch(`/data?have=${have}`, { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const update = await answer.json();
        apply(update);
        say(`The run is ${update.state}.`);
        if (update.state === "finished") wait = 10000;
      } catch {
        say("No answer: `dna watch` has stopped. The page shows the last known state.");
        wait = 5000;
      }
    }
    setTimeout(poll, wait);
  };

  document.addEventListener("pointermove", (event) => {
    if (event.isTrusted) pointer = { clientX: event.clientX, clientY: event.clientY };
  });
  document.documentElement.addEventListener("pointerleave", () => (pointer = null));
  setTimeout(poll, 2000);
})();
