// The dialogs of the page on policies: each posts its form, and leads to the job or to the page as it is then.
import { ask, clearProblems, dialogOf, part, showProblem } from "./api.js";

for (const button of document.querySelectorAll("[data-open]")) {
  button.hidden = false;
  button.addEventListener("click", () => document.getElementById(button.dataset.open).showModal());
}

for (const form of document.querySelectorAll("form[data-post]")) {
  dialogOf(form.parentElement.id);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}

function given(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox" && field.name === "policies") {
      body.policies ??= [];
      if (field.checked) body.policies.push(field.value);
    } else if (field.type === "checkbox") body[field.name] = field.checked;
    else if (field.type === "number") body[field.name] = number(field);
    else body[field.name] = field.value;
  }
  return body;
}

function number(field) {
  if (field.value === "") return null;
  return "percent" in field.dataset ? Number(field.value) / 100 : Number(field.value);
}

async function send(form) {
  const rest = form.querySelector("[data-rest]");
  const start = form.querySelector('[type="submit"]');
  clearProblems(form, rest);
  start.disabled = true;
  try {
    const answer = await ask("POST", form.dataset.post, given(form));
    if (form.dataset.to === "job") location.assign(part("jobs", answer.job_id));
    else location.assign("/policies");
  } catch (problem) {
    showProblem(form, problem, rest);
    (form.querySelector('[aria-invalid="true"]') ?? start).focus();
    start.disabled = false;
  }
}
