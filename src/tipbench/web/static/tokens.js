import { ask, clearProblems, part, show, showProblem } from "./api.js";

const form = document.getElementById("new-token");
const rest = document.getElementById("token-problem");
const once = document.getElementById("once");
const secret = document.getElementById("secret");
const sure = document.getElementById("sure");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  clearProblems(form, rest);
  const given = Object.fromEntries(new FormData(form));
  try {
    const made = await ask("POST", "/api/tokens", given);
    secret.textContent = made.token;
    once.hidden = false;
    form.reset();
    await refresh();
  } catch (problem) {
    showProblem(form, problem, rest);
  }
});

document.getElementById("copy").addEventListener("click", async (event) => {
  try {
    await navigator.clipboard.writeText(secret.textContent);
    event.target.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(secret);
  }
});

document.addEventListener("click", (event) => {
  const button = event.target.closest(".revoke");
  if (!button) return;
  document.getElementById("sure-name").textContent = button.dataset.name;
  document.getElementById("sure-own").hidden = !("own" in button.dataset);
  sure.returnValue = "";
  sure.showModal();
  sure.addEventListener("close", () => sure.returnValue === "yes" && revoke(button.dataset.name), { once: true });
});

async function revoke(name) {
  try {
    await ask("DELETE", part("api", "tokens", name));
    await refresh();
  } catch (problem) {
    show(rest, problem.message);
  }
}

// The list as the server shows it now.
async function refresh() {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("tokens");
  if (fresh) document.getElementById("tokens").replaceWith(fresh);
  else location.reload();
}
