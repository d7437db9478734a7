// Keeps every stroke: one item at a time goes to the service, the newest state of it, until it is there. What
// is not there yet waits in this browser too, so that neither a reload nor a new login loses it.
import { ask, part } from "./api.js";

const WAITS = [500, 1000, 2000, 5000, 10_000];
const TELL = { 0: "Not saved yet: the service does not answer. Trying again …", 401: "logged out" };
const OVER = [403, 404, 409];

export class Strokes {
  // `told` hears "saved", "saving", "logged out" or a sentence on what is wrong; `changed` what another tab
  // did: an item with its answer, or no item once the batch is not to be judged any more.
  constructor(batch, { told, changed }) {
    this.batch = batch;
    this.told = told;
    this.changed = changed;
    this.waiting = new Map(Object.entries(this.#left()));
    this.busy = false;
    this.failed = 0;
    this.kept = true;
    this.wake = () => {};
    this.tabs = new BroadcastChannel(`tipbench ${batch}`);
    this.tabs.onmessage = ({ data }) => changed(data.item, data.answer);
    addEventListener("online", () => this.wake());
    document.addEventListener("visibilitychange", () => document.hidden || this.wake());
  }

  get unsaved() {
    return this.busy || this.waiting.size > 0;
  }

  // Whether a stroke would be gone with the page.
  get endangered() {
    return this.unsaved && !this.kept;
  }

  put(item, answer) {
    this.waiting.delete(item);
    this.waiting.set(item, { ...answer });
    this.#keep();
    this.tabs.postMessage({ item, answer });
    this.send();
  }

  // Once nothing is on its way any more.
  async settled() {
    this.wake();
    while (this.unsaved) await new Promise((done) => setTimeout(done, 30));
  }

  // The batch is in: nobody needs what is left here.
  end() {
    this.waiting.clear();
    this.#keep();
    this.tabs.postMessage({});
  }

  async send() {
    if (this.busy || !this.waiting.size) return;
    this.busy = true;
    this.told("saving");
    let refused = "";
    while (this.waiting.size) {
      const [item, answer] = this.waiting.entries().next().value;
      try {
        await ask("PUT", part("api", "judge", "batches", this.batch, "items", item), answer, { keepalive: true, stay: true });
        this.#done(item, answer);
        this.failed = 0;
      } catch (problem) {
        if (lasting(problem.status)) {
          refused = problem.message;
          this.#done(item, answer);
          if (OVER.includes(problem.status)) return this.#over(problem.message);
        } else {
          this.told(TELL[problem.status] ?? "Not saved yet; trying again …");
          await this.#pause();
        }
      }
    }
    this.busy = false;
    this.told(refused || "saved");
  }

  #over(message) {
    this.waiting.clear();
    this.#keep();
    this.busy = false;
    this.changed(null, message);
  }

  #done(item, answer) {
    if (this.waiting.get(item) === answer) this.waiting.delete(item);
    this.#keep();
  }

  // A while, longer each time; shorter when there is reason to hope.
  async #pause() {
    const wait = WAITS[Math.min(this.failed++, WAITS.length - 1)];
    await new Promise((done) => {
      this.wake = done;
      setTimeout(done, wait);
    });
  }

  get #name() {
    return `tipbench strokes ${this.batch}`;
  }

  #left() {
    try {
      return JSON.parse(localStorage.getItem(this.#name)) ?? {};
    } catch {
      return {};
    }
  }

  #keep() {
    try {
      if (this.waiting.size) localStorage.setItem(this.#name, JSON.stringify(Object.fromEntries(this.waiting)));
      else localStorage.removeItem(this.#name);
    } catch {
      this.kept = false; // no room, or not allowed: then the page must stay until all is saved
    }
  }
}

const lasting = (status) => status >= 400 && status < 500 && ![401, 408, 425, 429].includes(status);
