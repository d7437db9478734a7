// A job's page while the job goes on: its events say that something changed, and the page's own part is
// fetched anew, at most once a second. The browser connects again by itself when the stream breaks.
import { ask, part, show } from "./api.js";

const card = document.getElementById("job");
const problem = document.getElementById("job-problem");
const log = document.getElementById("log");
const id = card.dataset.job;
const AT_MOST_EVERY = 1000;

let stream = null;
let timer = 0;
let last = 0;
let spoken = 0;

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;

function later() {
  if (!timer) timer = setTimeout(refresh, Math.max(0, last + AT_MOST_EVERY - Date.now()));
}

async function refresh() {
  timer = 0;
  last = Date.now();
  let fresh;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return; // the stream tells when the service is back
  }
  const now = fresh.getElementById("job");
  if (!now) return location.reload();
  const wasOpen = document.querySelector("#live .notices")?.open;
  const down = atEnd();
  document.getElementById("live").replaceWith(fresh.getElementById("live"));
  if (wasOpen) document.querySelector("#live .notices")?.setAttribute("open", "");
  log.textContent = fresh.getElementById("log").textContent;
  if (down) log.scrollTop = log.scrollHeight;
  for (const name of ["cancel", "resume", "experiment", "judge-next"]) {
    const button = document.getElementById(name);
    const other = fresh.getElementById(name);
    button.hidden = other.hidden;
    button.className = other.className;
    button.disabled = false;
  }
  const live = "live" in now.dataset;
  card.dataset.after = now.dataset.after;
  speak(live);
  if (live && !stream) watch();
  if (!live && stream) {
    stream.close();
    stream = null;
  }
}

// Not every change is read aloud: one in ten seconds, and the end.
function speak(live) {
  if (live && Date.now() - spoken < 10_000) return;
  spoken = Date.now();
  document.getElementById("spoken").textContent = document.getElementById("told").textContent;
}

function watch() {
  // What the page shows already need not be sent again.
  stream = new EventSource(`${part("api", "jobs", id, "events")}?after=${card.dataset.after}`);
  stream.onmessage = later;
  stream.addEventListener("open", later);
  stream.addEventListener("error", later);
  stream.addEventListener("end", later);
}

async function change(button, action) {
  show(problem, "");
  button.disabled = true;
  try {
    await ask("POST", part("api", "jobs", id, action));
    card.dataset.live = "";
    await refresh();
  } catch (error) {
    show(problem, error.message);
    button.disabled = false;
  }
}

document.getElementById("cancel").addEventListener("click", (event) => change(event.target, "cancel"));
document.getElementById("resume").addEventListener("click", (event) => change(event.target, "resume"));
log.scrollTop = log.scrollHeight;
if ("live" in card.dataset) watch();
addEventListener("pagehide", () => stream?.close());
