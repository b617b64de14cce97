// page.js - keeps the page as the gateway says it, without a reload: each update is the whole view as
// the server wrote it, and only what differs is put into the page. So focus, scroll and what somebody
// opened stay. Nothing is made of texts here: escaping is the server's alone.
"use strict";

const live = document.getElementById("live");
let last = null; // the newest update: INSTANCE-NUMBER
let heardAt = performance.now();
let openedAt = heardAt; // when the stream of updates was asked for
let updates = null, again = 0; // the stream; the timer of the next try
let lost = false; // it broke, and no update has come since
let resumes = false; // nobody looked: updates that did not come are not missed
let missed = 0, missedAt = -Infinity; // how many updates did not come, and when that was seen
let state = "";

// One line for people, and for screen readers where it changes.
function tell(text) {
  if (text === state) return;
  state = text;
  live.textContent = text;
}

function sameAttributes(old, now) {
  for (const a of [...old.attributes])
    if (!now.hasAttribute(a.name)) old.removeAttribute(a.name);
  for (const a of now.attributes)
    if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
}

// Makes `old` what `now` is.
function become(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(now);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = now.data;
    return;
  }
  sameAttributes(old, now);
  const is = [...old.childNodes], shall = [...now.childNodes];
  for (let i = shall.length; i < is.length; i++) is[i].remove();
  for (let i = 0; i < shall.length; i++)
    if (i < is.length) become(is[i], shall[i]);
    else old.append(shall[i]);
}

function show(html) {
  const began = performance.now();
  const parsed = document.createElement("template");
  parsed.innerHTML = html;
  const page = parsed.content.firstElementChild;
  if (page === null || page.id !== "page") return;
  become(document.getElementById("page"), page);
  mark();
  document.documentElement.dataset.frameMs = (performance.now() - began).toFixed(1); // read by a test
}

// The tab says how it stands, too.
function mark() {
  const page = document.getElementById("page");
  const signs = { good: "\u2713", warn: "!", bad: "\u2717", unknown: "?" };
  const sign = page.classList.contains("stale") ? "\u2026" : signs[page.classList[0]] || "";
  document.title = `${sign} ${page.dataset.site} - Tombolo`;
}

// Updates are numbered: a number that was passed over is an update that did not come.
function count(id) {
  const [instance, number] = id.split("-");
  const [before, was] = last === null ? [instance, Number(number) - 1] : last.split("-");
  if (instance !== before) {
    location.reload(); // another tombolo-web: its page and script may be others
    return;
  }
  const gap = Number(number) - Number(was) - 1;
  if (gap > 0 && !resumes) [missed, missedAt] = [gap, performance.now()];
  resumes = false;
  last = id;
}

function words() {
  const page = document.getElementById("page");
  const silent_s = (performance.now() - Math.max(heardAt, openedAt)) / 1e3;
  const late = silent_s > 3 * Number(page.dataset.pace || 1) + 3;
  document.documentElement.classList.toggle("cut", late || lost);
  if (lost) tell("The connection to tombolo-web is cut: what you see is old");
  else if (late) tell(`tombolo-web has said nothing for a while: what you see is old`);
  else if (performance.now() - missedAt < 15000) tell(`Live again: ${missed} updates were missed`);
  else if (last !== null) tell("Live");
}

// Ages go on between updates.
function age(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

function tick() {
  const since_s = (performance.now() - heardAt) / 1e3;
  if (since_s > 1.5)
    for (const t of document.querySelectorAll("time[data-age]"))
      t.textContent = age(Number(t.dataset.age) + since_s);
  words();
}

// An answer other than 200 (there are too many, or a proxy says so) ends an EventSource for good.
function broke() {
  lost = true;
  words();
  if (updates.readyState !== EventSource.CLOSED) return; // it tries again by itself
  updates = null;
  again = setTimeout(listen, 3000 + 2000 * Math.random());
}

function listen() {
  clearTimeout(again);
  if (document.hidden || updates !== null) return;
  openedAt = performance.now();
  updates = new EventSource(document.body.dataset.updates);
  updates.addEventListener("page", (event) => {
    heardAt = performance.now();
    lost = false;
    count(event.lastEventId);
    show(event.data);
    words();
  });
  updates.onerror = broke;
}

// A tab that nobody sees asks for nothing.
function pause() {
  clearTimeout(again);
  updates?.close();
  updates = null;
  resumes = true;
}

document.addEventListener("visibilitychange", () => (document.hidden ? pause() : listen()));
setInterval(() => document.hidden || tick(), 1000);
mark();
listen();
