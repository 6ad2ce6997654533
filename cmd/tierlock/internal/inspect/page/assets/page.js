"use strict";
// Any process may have written the shown data. Therefore it is set as text, and never as markup.

const svgNS = "http://www.w3.org/2000/svg";
const maxLanes = 8, maxListed = 8;
const maxOpen = 12; // if there are more locks, each is shown as one line until it is opened

function element(name, className, ...children) {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.append(...children);
  return e;
}

function drawing(name, attributes, ...children) {
  const e = document.createElementNS(svgNS, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

function age(ms) {
  if (ms < 0) return "?";
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 172800) return Math.floor(s / 3600) + " h " + Math.floor(s / 60 % 60) + " min";
  return Math.floor(s / 86400) + " days";
}

function dot(fill) {
  return drawing("svg", { class: "dot", viewBox: "0 0 2 2", "aria-hidden": "true" }, drawing("circle", { fill, cx: 1, cy: 1, r: 1 }));
}

function holders(lock, colour) {
  const list = lock.holders.slice(0, maxListed).map((h) => element("p", "holder", dot(colour.get(h.who)),
    element("span", "tag", h.permits || "holds"),
    element("span", "who", h.who),
    element("span", "soft", [h.kind, "held for " + (h.at_most ? "at most " : "") + age(h.held), h.token && "token " + h.token, h.asked && "asked to give it up"].filter(Boolean).join(" · "))));
  const hidden = lock.holding - list.length;
  if (hidden > 0) list.push(element("p", "holder", element("span", "soft", `and ${hidden} more`)));
  if (lock.permits) list.unshift(element("p", "holder", element("span", "tag free", "semaphore"), element("span", "soft", lock.permits)), ...permits(lock, colour));
  else if (!lock.holding) list.push(element("p", "holder", element("span", "tag free", vacant(lock))));
  return list;
}

function vacant(lock) { return lock.waiting ? "not granted yet" : "free"; }

// Returns the holders of a lock that is not open, in one line.
function brief(lock, colour) {
  if (lock.permits) return [element("span", "soft", lock.permits)];
  if (!lock.holding) return [element("span", "tag free", vacant(lock))];
  const [h] = lock.holders;
  return [dot(colour.get(h.who)), element("span", "who", h.who),
    element("span", "soft", (lock.holding > 1 ? `and ${lock.holding - 1} more · ` : "") + "held for " + (h.at_most ? "at most " : "") + age(h.held))];
}

// Returns a row for a semaphore: which processes have how many permits, and how many are free, if the number is known.
function permits(lock, colour) {
  if (!lock.all) return [];
  const parts = [];
  let at = 0;
  for (const h of lock.holders.filter((h) => h.count)) {
    parts.push(drawing("rect", { fill: colour.get(h.who), x: at, y: 0, height: 1, width: h.count }));
    at += h.count;
  }
  for (let i = 1; i < lock.all && lock.all <= 100; i++) parts.push(drawing("line", { x1: i, x2: i, y1: 0, y2: 1 }));
  return [drawing("svg", { class: "permits", viewBox: `0 0 ${lock.all} 1`, preserveAspectRatio: "none", role: "img", "aria-label": lock.permits }, ...parts)];
}

function waiters(lock) {
  const list = element("ol", "");
  const longest = Math.max(1000, ...lock.waiters.map((w) => w.age));
  let above = lock.holding === 1 ? lock.holders[0].who : "";
  for (const w of lock.waiters.slice(0, maxListed)) {
    const state = { waits: "", "grace-period": " · is first", next: " · is next" }[w.state] ?? " · may hold too";
    const bar = drawing("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
      drawing("rect", { x: 0, y: 0, height: 1, width: Math.max(0, 100 * w.age / longest) }));
    list.append(element("li", "waiter", element("span", "who", w.who), element("span", "soft", `${w.kind}${state} · ${age(w.age)}`),
      ...(w.for && w.for !== above ? [element("span", "soft for", "waits for " + w.for)] : []), bar));
    above = w.who;
  }
  const hidden = lock.waiting - Math.min(lock.waiters.length, maxListed);
  if (hidden > 0) list.append(element("li", "", element("span", "soft for", `and ${hidden} more`)));
  return list;
}

// Each shown process has its own color as long as it is shown. Steps of the golden angle never give the same hue, and similar hues have
// different lightness.
const places = new Map();
function colours(state) {
  const all = new Set(state.locks.flatMap((l) => [...l.spans, ...l.holders].map((s) => s.who)));
  for (const who of places.keys()) if (!all.has(who)) places.delete(who);
  const taken = new Set(places.values());
  let next = 0;
  for (const who of [...all].sort()) {
    if (places.has(who)) continue;
    while (taken.has(next)) next++;
    places.set(who, next++);
  }
  return new Map([...places].map(([who, i]) => [who, `hsl(${(215 + i * 137.508) % 360} ${70 - 25 * (i >> 3 & 1)}% ${57 - 17 * (i >> 2 & 1)}%)`]));
}

// Returns the history of a lock: one lane for each process that had the lock recently.
function timeline(lock, state, colour) {
  const begin = Math.max(state.at - state.window, Math.min(state.at - 30000, ...lock.spans.map((s) => s.from)));
  const length = state.at - begin, lanes = new Map();
  for (const s of lock.spans.toReversed()) {
    if (!lanes.has(s.who)) lanes.set(s.who, []);
    lanes.get(s.who).push(s);
  }
  const box = element("div", "timeline");
  for (const [who, spans] of [...lanes].slice(0, maxLanes).sort(([a], [b]) => a < b ? -1 : 1)) {
    const rects = spans.map((s) => {
      const from = Math.max(s.from, begin);
      return drawing("rect", { fill: colour.get(who), x: 1000 * (from - begin) / length, y: 0, height: 10,
        width: Math.max(2, 1000 * (s.to - from) / length) });
    });
    const name = element("span", "who", who);
    name.title = who;
    box.append(element("div", "lane", name,
      drawing("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": `${who}: ${spans.length} times` }, ...rects)));
  }
  if (lanes.size > maxLanes) box.append(element("p", "soft", `and ${lanes.size - maxLanes} more ${lanes.size - maxLanes === 1 ? "process" : "processes"}`));
  box.append(element("div", "axis", element("span", "", age(length) + " ago"), element("span", "", "now")));
  const turns = lock.spans.length;
  box.append(element("p", "soft", (turns === 1 ? "1 turn" : turns + " turns") + " seen" + (lock.unseen ? `, ${lock.unseen} more came and went between two looks` : "")));
  return box;
}

const opened = new Map(); // the key is the path; the value says whether the user has opened or closed the lock

function card(lock, state, colour, open) {
  const count = element("span", lock.waiting ? "count" : "count none", lock.waiting === 1 ? "1 waits" : lock.waiting + " wait");
  const summary = element("summary", "", element("h2", "", lock.path), count);
  summary.dataset.path = lock.path;
  summary.addEventListener("click", (e) => {
    e.preventDefault();
    opened.set(lock.path, !open);
    show(latest);
  });
  const c = element("details", "lock", summary);
  c.open = open;
  if (!open) {
    summary.append(element("p", "brief", ...brief(lock, colour)));
    return c;
  }
  c.append(...holders(lock, colour));
  if (lock.waiting) c.append(waiters(lock));
  if (lock.spans.length) c.append(timeline(lock, state, colour));
  return c;
}

function status(text, bad) {
  const s = document.getElementById("status");
  s.textContent = text;
  s.className = bad ? "bad" : "";
}

function show(state) {
  if (state.trouble) {
    status("No answer from the servers; this page shows old data. " + state.trouble, true);
  } else {
    status("Live, at " + new Date(state.at).toLocaleTimeString() + (state.grants && "; " + state.grants), state.grants !== "");
  }
  document.getElementById("store").textContent = state.store;
  document.getElementById("path").textContent = state.path;
  document.title = "tierlock " + state.store + " " + state.path;
  document.getElementById("about").textContent = `Looks every ${state.every} ms; what begins and ends between two looks is not seen.` +
    (state.complete && !state.more ? "" : " There are more locks than are shown, and than are searched.");
  if (pressed || !getSelection().isCollapsed) return; // the user is about to click or to copy
  const colour = colours(state), locks = state.locks.filter(wanted);
  const cards = locks.map((l) => card(l, state, colour, opened.get(l.path) ?? locks.length <= maxOpen));
  if (!cards.length) cards.push(element("p", "empty", state.locks.length ? "No lock has this text in its path or in the name of a process." :
    "No process holds a lock here or waits for one."));
  const focused = document.activeElement.dataset.path;
  document.getElementById("locks").replaceChildren(...cards);
  if (focused !== undefined) cards.find((c) => c.firstChild.dataset?.path === focused)?.firstChild.focus({ preventScroll: true });
}

const search = document.getElementById("search");
let latest, pressed = false;
addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = false; });

function wanted(lock) {
  const text = search.value.trim().toLowerCase();
  return [lock.path, ...[...lock.holders, ...lock.waiters, ...lock.spans].map((s) => s.who)].some((t) => t.toLowerCase().includes(text));
}

search.addEventListener("input", () => latest && show(latest));

async function follow() {
  for (let pause = 500; ; await new Promise((done) => setTimeout(done, pause))) {
    if (document.hidden) continue;
    try {
      const answer = await fetch("state.json");
      if (answer.status === 503) continue; // before the first poll
      if (!answer.ok) throw new Error(answer.statusText);
      latest = await answer.json();
      pause = Math.max(250, latest.every);
      show(latest);
    } catch (e) {
      status("tierlock watch does not answer any more; this page shows old data.", true);
    }
  }
}

follow();
