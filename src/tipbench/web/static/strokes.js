// Keeps every stroke: one item at a time goes to the service, the newest state of it, until it is there.
import { ask, part } from "./api.js";

const WAITS = [500, 1000, 2000, 5000, 10_000];

export class Strokes {
  // `told` hears "saved", "saving" or a sentence on what is wrong.
  constructor(batch, told) {
    this.batch = batch;
    this.told = told;
    this.waiting = new Map();
    this.busy = false;
    this.failed = 0;
  }

  get unsaved() {
    return this.busy || this.waiting.size > 0;
  }

  put(item, answer) {
    this.waiting.delete(item);
    this.waiting.set(item, { ...answer });
    this.#send();
  }

  // Once nothing is on its way any more.
  async settled() {
    while (this.unsaved) await new Promise((done) => setTimeout(done, 30));
  }

  async #send() {
    if (this.busy) return;
    this.busy = true;
    this.told("saving");
    while (this.waiting.size) {
      const [item, answer] = this.waiting.entries().next().value;
      try {
        await ask("PUT", part("api", "judge", "batches", this.batch, "items", item), answer, { keepalive: true });
        if (this.waiting.get(item) === answer) this.waiting.delete(item);
        this.failed = 0;
      } catch (problem) {
        const lasting = problem.status >= 400 && problem.status < 500 && problem.status !== 429;
        if (lasting) this.waiting.delete(item);
        this.told(lasting ? problem.message : "Not saved yet; trying again …");
        if (!lasting) await new Promise((done) => setTimeout(done, WAITS[Math.min(this.failed++, WAITS.length - 1)]));
        else if (!this.waiting.size) return void (this.busy = false);
      }
    }
    this.busy = false;
    this.told("saved");
  }
}
