// Keeps pages up to date: an open process, a node and what is being written in it, the list. Without this script they are
// read again by hand.
(() => {
  "use strict";
  const LEAST_MS = 1000;
  const SILENCE_MS = 10000;
  const LIST_MS = 10000;
  const PATIENCE_MS = 30000;
  const MAX_WRITTEN = 20000;
  const byId = (id) => document.getElementById(id);

  // What is pressed must not be taken away before it is let go: it would be no click.
  let pressed = false;
  document.addEventListener("pointerdown", () => (pressed = true));
  for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => (pressed = false));

  // Nor may the answer to a click be thrown away for a newer picture, as long as it is to be expected.
  let asked = -Infinity;
  const isRenewal = (event) => (event.detail.requestConfig.triggeringEvent || {}).type === "refresh";
  const isBusy = () => pressed || Date.now() - asked < PATIENCE_MS;
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isRenewal(event)) asked = Date.now();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!isRenewal(event)) asked = -Infinity;
  });

  // Events as long as the page is looked at: a browser opens few streams at once to one place, and leaves them to others.
  function stream(address, handlers) {
    let source = null;
    let over = false;
    function listen() {
      if (over || source !== null || document.hidden) return;
      source = new EventSource(address);
      for (const [kind, handler] of Object.entries(handlers)) {
        source.addEventListener(kind, (event) => handler(JSON.parse(event.data)));
      }
    }
    function leave() {
      if (source !== null) source.close();
      source = null;
    }
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
    window.addEventListener("pagehide", leave);
    window.addEventListener("pageshow", listen);
    listen();
    return () => {
      over = true;
      leave();
    };
  }

  // Has a part of the page renewed soon after each call, at most once in LEAST_MS, not while something is pressed; and after
  // a silence, for what was told may have been lost on the way.
  function renewing(selector) {
    let waiting = null;
    let last = -Infinity;
    let over = false;
    function renew() {
      if (waiting !== null) return;
      waiting = window.setTimeout(() => {
        waiting = null;
        last = Date.now();
        if (isBusy()) return renew();
        window.htmx.trigger(selector, "refresh");
      }, Math.max(0, last + LEAST_MS - Date.now()));
    }
    document.addEventListener("htmx:beforeSwap", (event) => {
      if (isRenewal(event) && isBusy()) {
        event.detail.shouldSwap = false;
        renew();
      }
    });
    window.setInterval(() => {
      if (!over && !document.hidden && Date.now() - last >= SILENCE_MS) renew();
    }, SILENCE_MS);
    renew.end = () => (over = true);
    return renew;
  }

  function followProcess(page) {
    const told = byId("told");
    let shown = page.dataset.status;
    const renew = renewing("#plan");
    const end = stream(page.dataset.events, {
      state(state) {
        const status = state.closeReason || state.status;
        // The first one mostly tells what the page shows already.
        if (status !== shown) told.textContent = `The process is ${status}`;
        shown = status;
        if (state.status === "CLOSED") {
          end();
          renew.end();
        }
        renew();
      },
      turn: renew,
      plan: renew,
    });
  }

  // The text of a call as it comes, as text; the facts when a turn is done. What was written stays until there is more.
  function followNode(node) {
    const moved = byId("moved");
    const section = byId("written");
    const title = byId("written-title");
    const writing = byId("writing");
    let ended = true;
    const renew = renewing("#node");

    function write(text) {
      if (ended) writing.replaceChildren();
      ended = false;
      title.textContent = "Being written";
      section.hidden = false;
      const isAtEnd = writing.scrollTop + writing.clientHeight >= writing.scrollHeight - 8;
      writing.append(text);
      for (let length = writing.textContent.length; length > MAX_WRITTEN && writing.childNodes.length > 1; ) {
        length -= writing.firstChild.length;
        writing.firstChild.remove();
      }
      if (isAtEnd) writing.scrollTop = writing.scrollHeight;
    }

    const end = stream(node.dataset.nodeEvents, {
      chunk: (chunk) => write(chunk.text),
      turn(turn) {
        ended = true;
        title.textContent = "Written last";
        const link = document.createElement("a");
        link.href = window.location.pathname;
        link.textContent = "Show what came of it";
        moved.replaceChildren(`Turn ${turn.turn}, ${turn.phase}, is done. `, link);
        renew();
      },
      state(state) {
        if (state.status === "CLOSED") {
          end();
          renew.end();
        }
        renew();
      },
    });
  }

  // The rows that are in sight, cell by cell where something is new, and new rows above them.
  function followList(list) {
    const body = list.querySelector("tbody");
    const size = Number(list.dataset.grows || 0);
    let last = Date.now();

    function inSight(row) {
      const at = row.getBoundingClientRect();
      return at.bottom > 0 && at.top < window.innerHeight;
    }

    function isHeld(part) {
      const selection = document.getSelection();
      const isSelected = selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
      return isSelected || part.contains(document.activeElement);
    }

    function update(row, fresh) {
      [...fresh.cells].forEach((cell, at) => {
        const old = row.cells[at];
        if (old.innerHTML !== cell.innerHTML && !isHeld(old)) old.replaceChildren(...cell.childNodes);
      });
    }

    function trim() {
      const older = byId("older");
      while (body.rows.length > size && !isHeld(body.lastElementChild)) {
        body.lastElementChild.remove();
        const address = new URL(older.href);
        address.searchParams.set("cursor", body.lastElementChild.dataset.place);
        older.href = address.href;
        older.parentElement.hidden = false;
      }
    }

    async function refresh() {
      const address = new URL(list.dataset.rows, window.location.href);
      for (const row of [...body.rows].filter(inSight).slice(0, 50)) address.searchParams.append("row", row.id.slice(2));
      if (size) address.searchParams.set("after", body.rows.length ? body.rows[0].dataset.place : "");
      else if (!address.searchParams.has("row")) return;
      let answer;
      try {
        answer = await window.fetch(address, { headers: { "HX-Request": "true" } });
      } catch {
        return;
      }
      if (answer.status === 401) window.location.reload();
      if (!answer.ok || document.hidden || pressed) return;
      const template = document.createElement("template");
      template.innerHTML = await answer.text();
      const added = [];
      for (const fresh of template.content.querySelectorAll("tr")) {
        const row = byId(fresh.id);
        if (row) update(row, fresh);
        else added.push(fresh);
      }
      if (!added.length) return;
      body.prepend(...added);
      list.hidden = false;
      if (byId("none")) byId("none").remove();
      trim();
    }

    function tick() {
      if (document.hidden || pressed || Date.now() - last < LIST_MS) return;
      last = Date.now();
      refresh();
    }
    window.setInterval(tick, 1000);
    document.addEventListener("visibilitychange", tick);
  }

  document.addEventListener("click", (event) => {
    if (event.target.id === "all") byId("search").value = "";
  });
  const list = document.querySelector("[data-rows]");
  if (list) followList(list);
  if (!window.EventSource || !window.htmx) return;
  const page = document.querySelector("[data-events]");
  if (page) followProcess(page);
  const node = document.querySelector("[data-node-events]");
  if (node) followNode(node);
})();
