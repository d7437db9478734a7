// The judge's desk: one tip at a time, by keys or by touch. Nothing here knows who wrote a tip.
import { ask, loginAddress, make, part, show } from "./api.js";
import { Strokes } from "./strokes.js";

const by = (id) => document.getElementById(id);
const desk = by("desk");
const panels = [...desk.querySelectorAll(".scale")];
const scales = panels.map((panel) => ({
  name: panel.dataset.scale, low: Number(panel.dataset.low), high: Number(panel.dataset.high), panel,
}));
const experiment = desk.dataset.experiment;
// Whoever is quicker has not read, and whoever is slower was away: neither says how long a tip takes.
const SHORTEST_LOOK = 2000;
const LONGEST_LOOK = 120_000;
const PACE_FROM = 5;

let items = [];
let answers = [];
let at = 0;
let open = 0;
let strokes = null;
let usual = 20;
let shownAt = 0;
let rejected = "";
let reviewing = false;
const took = [];

async function begin() {
  let batch;
  try {
    batch = await ask("GET", part("api", "judge", experiment, "batch"));
  } catch (problem) {
    by("loading").hidden = true;
    by("nothing").hidden = false;
    by("nothing-told").textContent = problem.message;
    return;
  }
  items = batch.items;
  answers = items.map((item) => ({ ...item.answer }));
  usual = batch.seconds_each ?? usual;
  strokes = new Strokes(batch.batch, { told: saved, changed: elsewhere });
  for (const [item, answer] of strokes.waiting) take(item, answer);
  strokes.send();
  by("loading").hidden = true;
  makeTabs();
  rejected = batch.rejected ?? "";
  show(by("desk-problem"), rejected);
  const first = answers.findIndex((answer) => !complete(answer));
  if (first < 0) return finish();
  desk.hidden = false;
  go(first);
}

const complete = (answer) => scales.every((scale) => Number.isInteger(answer[scale.name]));
const left = () => answers.filter((answer) => !complete(answer)).length;

function go(to) {
  at = to;
  const item = items[at];
  const answer = answers[at];
  by("finished").hidden = true;
  desk.hidden = false;
  context(item.context);
  by("tip").textContent = item.tip;
  by("number").textContent = `${item.number} of ${items.length}`;
  by("note").value = answer.note ?? "";
  by("overlong").value = String(answer.overlong ?? "");
  showNote(Boolean(answer.note), false);
  const next = scales.findIndex((scale) => !Number.isInteger(answer[scale.name]));
  openScale(next < 0 ? scales.length - 1 : next);
  progress();
  shownAt = Date.now();
  scrollTo({ top: 0 });
  say(`Tip ${item.number} of ${items.length}. ${item.tip}`);
}

// A scenario is lines of "name: value", some indented below another; shown as a list of names and values.
function context(lines) {
  const [title, ...rest] = (Array.isArray(lines) ? lines : String(lines).split("\n"));
  by("context-h").textContent = title;
  const told = make("dl");
  let value = null;
  for (const line of rest) {
    const entry = line.match(/^\s*- (.*)$/);
    const pair = line.match(/^\s*([^:]{1,40}):\s?(.*)$/);
    if (entry && value) {
      let list = value.querySelector("ul");
      if (!list) value.append((list = make("ul")));
      list.append(make("li", { dir: "auto" }, entry[1]));
    } else if (pair && !(pair[2] === "" && /persona/i.test(pair[1]))) {
      value = make("dd", { dir: "auto" }, pair[2]);
      told.append(make("div", {}, make("dt", {}, pair[1]), value));
    } else if (value && !pair) {
      value.append(` ${line.trim()}`);
    }
  }
  by("context").replaceChildren(told);
}

function makeTabs() {
  by("tabs").replaceChildren(...scales.map((scale, n) => {
    const tab = make("button", { type: "button", class: "scale-tab" }, make("span", {}, scale.name.replaceAll("_", " ")), make("b", {}, "–"));
    tab.addEventListener("click", () => openScale(n));
    return tab;
  }));
}

function openScale(n) {
  open = n;
  const scale = scales[n];
  panels.forEach((panel, other) => (panel.hidden = other !== n));
  const question = scale.panel.querySelector(".question")?.textContent;
  const title = scale.panel.querySelector("h2").textContent;
  by("pad-told").textContent = question ? `${title}: ${question.charAt(0).toLowerCase()}${question.slice(1)}` : title;
  const keys = [];
  for (let value = scale.low; value <= scale.high; value += 1) {
    const key = make("button", { type: "button", class: "pad-key", "aria-pressed": "false" }, String(value));
    key.addEventListener("click", () => score(value));
    keys.push(key);
  }
  by("pad-keys").replaceChildren(...keys);
  marks();
}

function marks() {
  const answer = answers[at];
  [...by("tabs").children].forEach((tab, n) => {
    const given = answer[scales[n].name];
    tab.querySelector("b").textContent = given ?? "–";
    tab.classList.toggle("given", given !== undefined && given !== null);
    if (n === open) tab.setAttribute("aria-current", "step");
    else tab.removeAttribute("aria-current");
  });
  for (const [n, scale] of scales.entries()) {
    for (const level of panels[n].querySelectorAll(".level")) {
      level.setAttribute("aria-pressed", String(Number(level.dataset.value) === answer[scale.name]));
    }
  }
  [...by("pad-keys").children].forEach((key) => key.setAttribute("aria-pressed", String(Number(key.textContent) === answer[scales[open].name])));
  by("next").disabled = !complete(answer);
}

function score(value) {
  const scale = scales[open];
  if (!Number.isInteger(value) || value < scale.low || value > scale.high) {
    return show(by("desk-problem"), `${scale.name} goes from ${scale.low} to ${scale.high}.`);
  }
  show(by("desk-problem"), "");
  answers[at] = { ...answers[at], [scale.name]: value };
  keep();
  const next = scales.findIndex((one, n) => n > open && !Number.isInteger(answers[at][one.name]));
  if (next >= 0) {
    say(`${scale.name} ${value}. Now ${scales[next].name}.`);
    openScale(next);
  } else {
    say(`${scale.name} ${value}. ${complete(answers[at]) ? "Enter for the next tip." : ""}`);
    marks();
  }
  progress();
}

// The last score of this tip, or of the one before where this one has none yet.
function undo() {
  show(by("desk-problem"), "");
  const given = scales.map((scale, n) => (Number.isInteger(answers[at][scale.name]) ? n : -1)).filter((n) => n >= 0);
  if (!given.length) {
    if (at > 0) go(at - 1);
    return;
  }
  const last = given.at(-1);
  answers[at] = { ...answers[at], [scales[last].name]: null };
  keep();
  openScale(last);
  progress();
  say(`${scales[last].name} taken back.`);
}

function next() {
  const missing = scales.findIndex((scale) => !Number.isInteger(answers[at][scale.name]));
  if (missing >= 0) {
    openScale(missing);
    return show(by("desk-problem"), `${scales[missing].name} still needs a score.`);
  }
  show(by("desk-problem"), "");
  const look = Date.now() - shownAt;
  if (look >= SHORTEST_LOOK) took.push(Math.min(look, LONGEST_LOOK));
  const following = answers.findIndex((answer, n) => n > at && !complete(answer));
  const anywhere = following >= 0 ? following : answers.findIndex((answer) => !complete(answer));
  if (anywhere >= 0) go(anywhere);
  else if (reviewing && at < items.length - 1) go(at + 1);
  else finish();
}

function keep() {
  const answer = answers[at];
  const whole = Object.fromEntries(scales.map((scale) => [scale.name, answer[scale.name] ?? null]));
  strokes.put(items[at].id, { ...whole, overlong: answer.overlong ?? null, note: answer.note || null });
}

const take = (item, answer) => {
  const n = items.findIndex((one) => one.id === item);
  if (n >= 0) answers[n] = { ...answer };
  return n;
};

// The same batch is open in another tab: what was done there holds here.
function elsewhere(item, answer) {
  if (!item) return ended(answer ?? "This batch was handed in.");
  const n = take(item, answer);
  if (desk.hidden && left()) go(at);
  if (n === at) refresh();
  progress();
}

function refresh() {
  if (document.activeElement !== by("note")) by("note").value = answers[at].note ?? "";
  by("overlong").value = String(answers[at].overlong ?? "");
  marks();
}

function ended(text) {
  items = [];
  desk.hidden = true;
  by("finished").hidden = true;
  by("nothing").hidden = false;
  by("nothing-told").textContent = text;
  by("go-on").hidden = false;
}

function progress() {
  const n = left();
  by("far").max = items.length;
  by("far").value = items.length - n;
  by("far-told").textContent = `${items.length - n} of ${items.length} judged`;
  const pace = took.length < PACE_FROM ? usual : [...took].sort((a, b) => a - b)[took.length >> 1] / 1000;
  const time = (n * pace) / 60;
  by("time-left").textContent = n ? ` · about ${Math.max(1, Math.round(time))} min left` : "";
}

function saved(word) {
  if (word === "saving") return;
  const wrong = word !== "saved";
  by("saved").classList.toggle("wrong", wrong);
  by("saved").replaceChildren(...(word === "logged out" ? loggedOut() : [wrong ? word : "Saved"]));
  by("unsaved").replaceChildren(...(wrong ? by("saved").cloneNode(true).childNodes : []));
  by("unsaved").hidden = !wrong;
}

const loggedOut = () => ["You are logged out; your scores are kept in this browser. ", make("a", { href: loginAddress() }, "Log in"), " to save them."];

function say(text) {
  by("said").textContent = text;
}

function showNote(visible, focus = true) {
  by("note-field").hidden = !visible;
  by("note-button").setAttribute("aria-expanded", String(visible));
  if (visible && focus) by("note").focus();
}

function finish() {
  desk.hidden = true;
  by("finished").hidden = false;
  finishedTold();
  by("finished-h").focus();
}

function finishedTold() {
  by("finished-h").textContent = rejected && !reviewing ? "Not taken" : "All judged";
  const again = Boolean(rejected) && !reviewing;
  by("finished-told").textContent = again
    ? "Nothing of it counts yet. Look through it again, change what you now see differently, and hand it in once more."
    : `${items.length} tips have their scores. Handed in, they count; until then you may change any of them.`;
  by("again").classList.toggle("main-action", again);
  by("submit").classList.toggle("main-action", !again);
  show(by("finished-problem"), rejected);
}

// Once all have scores, Enter goes through them one by one.
function review(from) {
  reviewing = true;
  go(from);
}

async function submit() {
  const button = by("submit");
  button.disabled = true;
  button.textContent = "Handing in …";
  show(by("finished-problem"), "");
  try {
    await strokes.settled();
    await ask("POST", part("api", "judge", "batches", strokes.batch, "submit"), {});
    strokes.end();
    location.assign(part("judge", experiment, "result"));
  } catch (problem) {
    // After three rejections the judge's batch is another one, or there is none.
    if (problem.code === "closed") return ended(problem.message);
    if (problem.code === "rejected") {
      const now = await ask("GET", part("api", "judge", experiment, "batch")).catch(() => null);
      if (now?.batch !== strokes.batch) return ended(problem.message);
      rejected = problem.message;
      reviewing = false;
    }
    finishedTold();
    show(by("finished-problem"), problem.message);
    button.disabled = false;
    button.textContent = "Hand in";
  }
}

const typing = (event) => event.target.matches("textarea, input, select");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !items.length) return;
  if (document.querySelector("dialog[open]")) return;
  if (typing(event)) {
    if (event.key === "Escape") {
      event.target.blur();
      if (!by("note").value) showNote(false);
      by("tip").focus({ preventScroll: true });
    }
    return;
  }
  if (!by("finished").hidden) return finishedKey(event);
  const keys = {
    Enter: next, Backspace: undo, "?": () => by("help").showModal(), n: () => showNote(true),
    ArrowLeft: () => at > 0 && go(at - 1), ArrowRight: () => at < items.length - 1 && go(at + 1),
    e: () => panels[open].querySelector(".examples")?.toggleAttribute("open"),
  };
  const control = event.target.closest("button, summary, a");
  const onControl = control && !control.closest("dialog") && event.key === "Enter";
  if (/^\d$/.test(event.key)) score(digits(event.key));
  else if (keys[event.key] && !onControl) keys[event.key]();
  else return;
  event.preventDefault();
});

// On a scale that goes beyond nine, two digits within a second make one number.
let typed = { text: "", at: 0 };
function digits(key) {
  const scale = scales[open];
  const fresh = Date.now() - typed.at > 1000;
  typed = { text: fresh ? key : typed.text + key, at: Date.now() };
  const both = Number(typed.text);
  if (scale.high > 9 && !fresh && both <= scale.high) return both;
  typed.text = key;
  return Number(key);
}

function finishedKey(event) {
  if (event.target.closest("button, a") && event.key === "Enter") return;
  if (event.key === "Enter") (rejected && !reviewing ? review(0) : submit());
  else if (event.key === "Backspace") review(items.length - 1);
  else return;
  event.preventDefault();
}

for (const panel of panels) {
  panel.addEventListener("click", (event) => {
    const level = event.target.closest(".level");
    if (!level) return;
    score(Number(level.dataset.value));
    // After a click by mouse Enter means the next tip; who came here by Tab stays here.
    if (event.detail) by("tip").focus({ preventScroll: true });
  });
}
by("next").addEventListener("click", next);
by("back").addEventListener("click", undo);
by("help-button").addEventListener("click", () => by("help").showModal());
// Focus must not stay on a button of a dialog that is gone: Enter means the next tip again.
by("help").addEventListener("close", () => by("tip").focus({ preventScroll: true }));
by("note-button").addEventListener("click", () => showNote(by("note-field").hidden));
by("submit").addEventListener("click", submit);
by("again").addEventListener("click", () => review(0));
by("overlong").addEventListener("change", (event) => {
  answers[at] = { ...answers[at], overlong: event.target.value ? event.target.value === "true" : null };
  keep();
});
let pause = 0;
by("note").addEventListener("input", (event) => {
  answers[at] = { ...answers[at], note: event.target.value };
  clearTimeout(pause);
  pause = setTimeout(keepNote, 300);
});
function keepNote() {
  pause = 0;
  keep();
}
addEventListener("pagehide", () => pause && keepNote());
by("note").addEventListener("blur", () => {
  clearTimeout(pause);
  pause = 0;
  if (items.length && (answers[at].note ?? "") !== (items[at].answer?.note ?? "")) keep();
});
addEventListener("beforeunload", (event) => strokes?.endangered && event.preventDefault());

begin();
