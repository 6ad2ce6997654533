"use strict";
// All that is shown was written by processes that anybody may run, so it is set as text, never as markup.

const svgNS = "http://www.w3.org/2000/svg";
const maxLanes = 8, maxListed = 8;

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

function holders(lock) {
  const list = lock.holders.slice(0, maxListed).map((h) => element("p", "holder",
    element("span", "tag", h.permits || "holds"),
    element("span", "who", h.who),
    element("span", "soft", [h.kind, "node " + age(h.age), h.token && "token " + h.token, h.asked && "asked to give it up"].filter(Boolean).join(" · "))));
  const hidden = lock.holding - list.length;
  if (hidden > 0) list.push(element("p", "holder", element("span", "soft", `and ${hidden} more`)));
  if (lock.permits) list.unshift(element("p", "holder", element("span", "tag free", lock.permits)));
  else if (!lock.holding) list.push(element("p", "holder", element("span", "tag free", lock.waiting ? "granted to nobody yet" : "free")));
  return list;
}

function waiters(lock) {
  const list = element("ol", "");
  const longest = Math.max(1000, ...lock.waiters.map((w) => w.age));
  for (const w of lock.waiters.slice(0, maxListed)) {
    const state = { waits: "", quarantined: " · is first", next: " · is next" }[w.state] ?? " · may hold too";
    const bar = drawing("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
      drawing("rect", { x: 0, y: 0, height: 1, width: Math.max(0, 100 * w.age / longest) }));
    list.append(element("li", "waiter", element("span", "who", w.who), element("span", "soft", `${w.kind}${state} · ${age(w.age)}`),
      ...(w.for ? [element("span", "soft for", "waits for " + w.for)] : []), bar));
  }
  const hidden = lock.waiting - Math.min(lock.waiters.length, maxListed);
  if (hidden > 0) list.append(element("li", "", element("span", "soft", `and ${hidden} more`)));
  return list;
}

// A process has one colour, as far as there are colours.
function colours(state) {
  const all = [...new Set(state.locks.flatMap((l) => l.spans.map((s) => s.who)))].sort();
  return new Map(all.map((who, i) => [who, "c" + i % 8]));
}

// Who had the lock when: a lane for each process that had it lately.
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
      return drawing("rect", { class: colour.get(who), x: 1000 * (from - begin) / length, y: 0, height: 10,
        width: Math.max(2, 1000 * (s.to - from) / length) });
    });
    const name = element("span", "who", who);
    name.title = who;
    box.append(element("div", "lane", name,
      drawing("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": `${who}: ${spans.length} times` }, ...rects)));
  }
  if (lanes.size > maxLanes) box.append(element("p", "soft", `and ${lanes.size - maxLanes} more processes`));
  box.append(element("div", "axis", element("span", "", age(length) + " ago"), element("span", "", "now")));
  const turns = lock.spans.length;
  box.append(element("p", "soft", (turns === 1 ? "1 turn" : turns + " turns") + " seen" + (lock.unseen ? `, ${lock.unseen} more came and went between two looks` : "")));
  return box;
}

function card(lock, state, colour) {
  const count = element("span", lock.waiting ? "count" : "count none", lock.waiting === 1 ? "1 waits" : lock.waiting + " wait");
  const c = element("section", "lock", element("div", "top", element("h2", "", lock.path), count), ...holders(lock));
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
    status("No answer from the servers; what is shown is old. " + state.trouble, true);
  } else {
    status("Live, at " + new Date(state.at).toLocaleTimeString() + (state.grants && "; " + state.grants), state.grants !== "");
  }
  document.getElementById("path").textContent = state.path;
  document.title = "tierlock " + state.path;
  document.getElementById("about").textContent = `Looks every ${state.every} ms; what begins and ends between two looks is not seen.` +
    (state.complete && !state.more ? "" : " There are more locks than are shown.");
  if (!getSelection().isCollapsed) return; // somebody is about to copy
  const colour = colours(state);
  const cards = state.locks.map((l) => card(l, state, colour));
  if (!cards.length) cards.push(element("p", "empty", "Nobody holds a lock here, and nobody waits for one."));
  document.getElementById("locks").replaceChildren(...cards);
}

async function follow() {
  for (let pause = 500; ; await new Promise((done) => setTimeout(done, pause))) {
    if (document.hidden) continue;
    try {
      const answer = await fetch("state.json");
      if (answer.status === 503) continue; // before the first look
      if (!answer.ok) throw new Error(answer.statusText);
      const state = await answer.json();
      pause = Math.max(250, state.every);
      show(state);
    } catch (e) {
      status("tierlock watch does not answer any more; what is shown is old.", true);
    }
  }
}

follow();
