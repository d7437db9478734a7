import { ask, clearProblems, dialogOf, part, showProblem } from "./api.js";

const dialog = dialogOf("auto");
const form = document.getElementById("auto-form");
const rest = document.getElementById("auto-problem");
const open = document.getElementById("open-auto");

open.hidden = false;
open.addEventListener("click", () => dialog.showModal());

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  clearProblems(form, rest);
  const given = new FormData(form);
  const body = { judge: given.get("judge").trim(), same_family: given.has("same_family") };
  try {
    const started = await ask("POST", part("api", "judge", form.dataset.experiment, "auto"), body);
    location.assign(part("jobs", started.job_id));
  } catch (problem) {
    showProblem(form, problem, rest);
  }
});
