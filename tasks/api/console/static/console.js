// Keeps the page of an open process up to date. Without this script the page is read again by hand.
(() => {
  "use strict";
  document.addEventListener("click", (event) => {
    if (event.target.id === "all") document.getElementById("search").value = "";
  });

  const page = document.querySelector("[data-events]");
  if (!page || !window.EventSource || !window.htmx) return;

  const LEAST_MS = 1000;
  const SILENCE_MS = 10000;
  const told = document.getElementById("told");
  let source = null;
  let waiting = null;
  let last = 0;
  let closed = false;
  let pressed = false;
  let shown = page.dataset.status;

  function refresh() {
    if (waiting !== null) return;
    waiting = window.setTimeout(() => {
      waiting = null;
      last = Date.now();
      if (pressed) return refresh();
      window.htmx.trigger("#plan", "refresh");
    }, Math.max(0, last + LEAST_MS - Date.now()));
  }

  function onState(event) {
    const state = JSON.parse(event.data);
    const status = state.closeReason || state.status;
    // The first one mostly tells what the page shows already.
    if (status !== shown) told.textContent = `The process is ${status}`;
    shown = status;
    if (state.status === "CLOSED") {
      closed = true;
      leave();
    }
    refresh();
  }

  function listen() {
    if (closed || source !== null) return;
    source = new EventSource(page.dataset.events);
    source.addEventListener("state", onState);
    for (const kind of ["turn", "plan"]) source.addEventListener(kind, refresh);
  }

  // A browser opens few streams at once to one place: pages nobody looks at leave theirs to others.
  function leave() {
    if (source !== null) source.close();
    source = null;
  }

  // What is pressed must not be taken away before it is let go: it would be no click.
  document.addEventListener("pointerdown", () => (pressed = true));
  for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => (pressed = false));
  document.addEventListener("htmx:beforeSwap", (event) => {
    const cause = event.detail.requestConfig.triggeringEvent;
    if (pressed && cause && cause.type === "refresh") {
      event.detail.shouldSwap = false;
      refresh();
    }
  });

  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", listen);
  // What was told may have been lost on the way.
  window.setInterval(() => {
    if (!closed && !document.hidden && Date.now() - last >= SILENCE_MS) refresh();
  }, SILENCE_MS);
  listen();
})();
