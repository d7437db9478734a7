// The dialog that starts a collection. Its fields come from the settings table, its models from the host.
import { ask, billions, clearProblems, dialogOf, gigabytes, make, minutes, part, show, showProblem } from "./api.js";

const dialog = dialogOf("run");
const form = document.getElementById("run-form");
const rest = document.getElementById("run-problem");
const list = document.getElementById("model-list");
const listTold = document.getElementById("models-told");
const estimate = document.getElementById("estimate");
const start = document.getElementById("start");
const onAirflow = document.getElementById("start-on-airflow"); // only where there is one
const FIRST = ["prompts", "n_tips", "experiment", "n_scenarios"];
const PAUSE = 500;

let rows = [];
let timer = 0;
let asked = null;
let modelsFrom = null;
let installed = [];

const opener = document.getElementById("open-run");
opener.hidden = false;
opener.addEventListener("click", open);

async function open() {
  dialog.showModal();
  if (rows.length) return list.querySelector('input[type="checkbox"]') ? undefined : models();
  try {
    rows = await ask("GET", "/api/bench/options");
  } catch (problem) {
    return show(rest, problem.message);
  }
  const first = FIRST.map((name) => rows.find((row) => row.name === name)).filter(Boolean);
  document.getElementById("fields").append(...first.map(field));
  const others = rows.filter((row) => row.name !== "models" && !first.includes(row));
  document.getElementById("further").append(...others.map(field));
  await models();
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const words = (name) => {
  const known = { n_tips: "tips per cell", n_scenarios: "scenarios", assume_size: "assumed sizes", max_model_b: "largest model, in billions",
    ollama_url: "Ollama host", mlflow_url: "MLflow server" };
  const text = known[name] ?? name.replaceAll("_", " ");
  return capital(text);
};

function field(row) {
  const id = `run-${row.name}`;
  const about = { id, name: row.name, "aria-describedby": `${id}-help ${id}-problem` };
  const help = make("p", { class: "meta", id: `${id}-help` }, capital(row.help));
  const problem = make("p", { class: "problem", "data-problem": row.name, id: `${id}-problem`, hidden: true });
  if (row.type === "flag") {
    const box = make("input", { ...about, type: "checkbox", checked: row.default });
    return make("div", { class: "field" }, make("label", { class: "tick", for: id }, box, ` ${words(row.name)}`), help, problem);
  }
  const control = row.choices.length ? choice(row, about) : input(row, about);
  return make("div", { class: `field${row.type === "names" || row.type === "text" ? " long" : ""}` },
    make("label", { for: id }, words(row.name)), control, help, problem);
}

const choice = (row, about) =>
  make("select", about, ...row.choices.map((value) => make("option", { value, selected: value === row.default }, value)));

function input(row, about) {
  const value = Array.isArray(row.default) ? row.default.join(", ") : String(row.default);
  const kinds = { "whole number": { type: "number", step: "1", inputmode: "numeric" }, number: { type: "number", step: "any", inputmode: "decimal" } };
  return make("input", { ...about, ...(kinds[row.type] ?? { type: "text", spellcheck: "false" }), value, autocomplete: "off" });
}

// What the host has, smallest first; what is too large is there, greyed, with the reason.
async function models() {
  const url = form.elements.ollama_url?.value ?? "";
  modelsFrom = url;
  list.replaceChildren();
  installed = [];
  listTold.textContent = "Asking the host what is installed …";
  const wanted = rows.find((row) => row.name === "models")?.default ?? [];
  let found;
  try {
    found = await ask("GET", `/api/bench/models?ollama_url=${encodeURIComponent(url)}`);
  } catch (problem) {
    listTold.textContent = problem.message;
    return byHand(wanted);
  }
  if (!found.length) {
    listTold.textContent = "No model is installed yet: pull one, such as ollama pull qwen2.5:0.5b, and open this again.";
    return byHand(wanted);
  }
  listTold.textContent = found.length === 1 ? "1 model is installed." : `${found.length} models are installed.`;
  installed = found;
  const fits = found.filter((one) => !tooLarge(one));
  const usual = fits.filter((one) => wanted.includes(one.name));
  offer(new Set((usual.length ? usual : fits).map((one) => one.name)));
  later();
}

const offer = (ticked) => list.replaceChildren(...installed.map((one, at) => tick(one, at, ticked.has(one.name))));

// The billions of parameters that the dialog assumes for a model, or 0.
function assumedSize(name) {
  const pairs = (form.elements.assume_size?.value ?? "").split(",").map((text) => text.trim().split("="));
  return Number(pairs.find(([model, size]) => model === name && size)?.[1].replace(/b$/i, "")) || 0;
}

// By the limit that stands in the dialog, which need not be the one that the host was asked with.
function tooLarge(one) {
  const most = Number(form.elements.max_model_b?.value);
  const parameters = one.parameters ?? 1e9 * assumedSize(one.name);
  if (!parameters || !(most > 0) || one.too_large?.includes("digest")) return one.too_large;
  return Number((parameters / 1e9).toFixed(1)) > most ? `${billions(parameters)}: more than the ${most} billion that “Largest model” allows` : null;
}

function tick(one, at, checked) {
  const large = tooLarge(one);
  const id = `run-model-${at}`;
  const size = [one.parameters ? billions(one.parameters) : "size unknown", gigabytes(one.size_bytes), one.resident ? "loaded now" : ""];
  const told = make("span", { class: "meta", id: `${id}-told` }, large ?? size.filter(Boolean).join(" · "));
  const box = make("input", { type: "checkbox", id, name: "models", value: one.name, checked: checked && !large,
    disabled: Boolean(large), "aria-describedby": `${id}-told` });
  return make("label", { class: `model-choice ${large ? "off" : ""}`, for: id }, box, make("bdi", { class: "model" }, one.name), told);
}

// Where the host cannot be asked, names are written.
function byHand(wanted) {
  list.append(make("label", { class: "field long" }, "Names, separated by commas ",
    make("input", { name: "models", type: "text", value: wanted.join(", "), spellcheck: "false", autocomplete: "off" })));
}

function given() {
  const body = {};
  for (const row of rows) {
    const control = form.elements[row.name];
    if (row.name === "models") body.models = chosenModels();
    else if (row.type === "flag") body[row.name] = control.checked;
    else if (control.value.trim() !== "" || row.name === "mlflow_url") body[row.name] = value(row, control.value.trim());
  }
  return body;
}

function chosenModels() {
  const written = list.querySelector('input[type="text"]');
  if (written) return written.value.split(",").map((name) => name.trim()).filter(Boolean);
  return [...list.querySelectorAll("input:checked")].map((box) => box.value);
}

const value = (row, text) => (row.type.endsWith("number") && Number.isFinite(Number(text)) ? Number(text) : text);

form.addEventListener("input", (event) => {
  if (event.target.name === "ollama_url" || event.target.closest("#airflow-further")) return;
  if (["max_model_b", "assume_size"].includes(event.target.name) && installed.length) offer(new Set(chosenModels()));
  later();
});
form.addEventListener("change", (event) => {
  if (event.target.name === "ollama_url" && event.target.value !== modelsFrom) models();
});

function later() {
  clearTimeout(timer);
  timer = setTimeout(foretell, PAUSE);
}

// The dry run: what it would take, before anybody presses start.
async function foretell() {
  asked?.abort();
  asked = new AbortController();
  estimate.textContent = "Working out what it takes …";
  estimate.classList.remove("too-much");
  try {
    const plan = await ask("POST", "/api/bench/estimate", given(), { signal: asked.signal });
    clearProblems(form, rest);
    estimate.textContent = said(plan);
    estimate.classList.toggle("too-much", plan.peak_bytes > plan.free_bytes);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    estimate.textContent = "";
    showProblem(form, problem, rest);
  }
}

function said(plan) {
  if (!plan.cells) return `Nothing to do: all ${plan.skipped} cells are there already.`;
  const before = plan.skipped ? `, ${plan.skipped} done before` : "";
  const memory = `needs ${gigabytes(plan.peak_bytes)} of memory, ${gigabytes(plan.free_bytes)} are free`;
  const cells = plan.cells === 1 ? "1 cell" : `${plan.cells} cells`;
  return `${cells}${before}. ${capital(minutes(plan.minutes))}, ${plan.basis}; ${memory}.`;
}

async function begin(button, path, body) {
  clearTimeout(timer);
  asked?.abort();
  const buttons = [start, onAirflow].filter(Boolean);
  const words = button.textContent;
  for (const one of buttons) one.disabled = true;
  button.textContent = "Starting …";
  try {
    const started = await ask("POST", path, body);
    location.assign(part("jobs", started.job_id));
  } catch (problem) {
    showProblem(form, problem, rest);
    for (const one of buttons) one.disabled = false;
    button.textContent = words;
    (form.querySelector('[aria-invalid="true"]') ?? button).focus();
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  begin(start, "/api/bench/run", given());
});

// Its hosts are its own, and may have models that are not installed here.
onAirflow?.addEventListener("click", () => {
  const { hosts, hosts_models: named, wait_for_judge: way } = form.elements;
  const models = named.value.trim() ? { models: named.value } : {};
  begin(onAirflow, "/api/bench/run-on-airflow", { ...given(), ...models, hosts: hosts.value, wait_for_judge: way.value });
});
