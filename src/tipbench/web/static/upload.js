import { ask, show } from "./api.js";

const form = document.getElementById("upload");
const problem = document.getElementById("upload-problem");
const told = document.getElementById("upload-told");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  show(problem, "");
  show(told, "");
  const file = form.file.files[0];
  if (!file) return show(problem, "Choose a judge file first.");
  try {
    const applied = await ask("POST", "/api/judge/apply", file);
    const n = (applied.new ?? 0) + (applied.changed ?? 0);
    show(told, `Taken in: ${n} verdict${n === 1 ? "" : "s"}. ${applied.drift?.reason ?? ""}`);
    form.reset();
    await refresh();
  } catch (error) {
    show(problem, error.message);
  }
});

// The list as the server shows it now.
async function refresh() {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("waiting");
  if (fresh) document.getElementById("waiting").replaceWith(fresh);
}
