// What the pages' scripts share: asking the API, and telling what is wrong where it belongs.

export class Problem extends Error {
  constructor(status, code, message, fields) {
    super(message);
    this.status = status;
    this.code = code;
    this.fields = fields ?? {};
  }
}

const sentence = (text) => {
  const plain = String(text).replace(/\.$/, "");
  // An address or a name at its beginning stays as it is written.
  return `${/^[a-z]+([\s,;'’]|:\s|$)/.test(plain) ? plain.charAt(0).toUpperCase() : plain.charAt(0)}${plain.slice(1)}.`;
};

// The answer's JSON. A Problem for what the service refuses; status 0 where it could not be asked. Whoever is
// logged out is led to the login page, unless they are to `stay`.
export async function ask(method, path, body, { stay = false, ...options } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined && !(body instanceof Blob)) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(body);
  } else if (body instanceof Blob) {
    headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The service does not answer.");
  }
  if (answer.status === 401) {
    if (!stay) location.assign(loginAddress());
    throw new Problem(401, "unauthenticated", "You are logged out.");
  }
  const found = await answer.json().catch(() => null);
  if (answer.ok) return found;
  const told = found?.error ?? {};
  throw new Problem(answer.status, told.code, sentence(told.message ?? "Something went wrong"), told.fields);
}

export const loginAddress = () => `/login?next=${encodeURIComponent(location.pathname + location.search)}`;

export const part = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;

export function show(element, text) {
  if (!element) return;
  element.textContent = text ?? "";
  element.hidden = !text;
}

// Messages below their fields; what belongs to no field goes to `rest`.
export function showProblem(form, problem, rest) {
  clearProblems(form, rest);
  const homeless = [];
  for (const [name, message] of Object.entries(problem.fields ?? {})) {
    const place = form.querySelector(`[data-problem="${CSS.escape(name)}"]`);
    if (!place) {
      homeless.push(`${name}: ${message}`);
      continue;
    }
    show(place, sentence(message));
    for (const field of form.querySelectorAll(`[name="${CSS.escape(name)}"]`)) field.setAttribute("aria-invalid", "true");
    place.closest("details")?.setAttribute("open", "");
  }
  const told = Object.keys(problem.fields ?? {}).length > homeless.length;
  show(rest, homeless.length ? sentence(homeless.join("; ")) : told ? "" : problem.message);
}

export function clearProblems(form, rest) {
  for (const place of form.querySelectorAll("[data-problem]")) show(place, "");
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  show(rest, "");
}

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// A dialog whose buttons with data-close close it.
export function dialogOf(id) {
  const dialog = document.getElementById(id);
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close());
  return dialog;
}

export const gigabytes = (bytes) => (bytes >= 5e7 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.round(bytes / 1e6)} MB`);

export const billions = (count) => (count >= 999.5e6 ? `${(count / 1e9).toFixed(1)}B` : `${Math.round(count / 1e6)}M`);

export function minutes(value) {
  if (value < 1) return "less than a minute";
  if (value < 90) return `about ${Math.round(value)} minute${Math.round(value) === 1 ? "" : "s"}`;
  return `about ${(value / 60).toFixed(1)} hours`;
}
