// What all panels share: a form whose request is sent, and the outcome beside it.

import { parsed } from "./api.js";
import { element, pretty } from "./dom.js";

export class Panel {
  #api;
  #controller = new AbortController();
  #parts = {};
  #spec;
  #wasSent = false;

  /**
   * spec.route: below the page's address.
   * spec.examples: label to values of the form's fields.
   * spec.request: from the form's fields to the body; throws an Error whose message the user can act on.
   * spec.show: from the answer and its request to `{ summary, result }`: a sentence, and an element.
   */
  constructor(section, { api, ...spec }) {
    this.#api = api;
    this.#spec = spec;
    this.route = spec.route;
    this.section = section;
    this.form = section.querySelector("form");
    section.append(document.getElementById("panel-parts").content.cloneNode(true));
    for (const name of ["message", "result", "cost", "examples", "request", "answer", "exchange", "outcome"]) {
      this.#parts[name] = section.querySelector(`.${name}`);
    }
    this.form.querySelector("fieldset").append(this.#parts.examples);
    this.#offerExamples();
    this.#offerCopies();
    this.form.addEventListener("input", () => this.#draft());
    this.form.addEventListener("keydown", submitByKey);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    this.#draft();
  }

  /** Sends what the form holds. Of several runs only the last one is shown. */
  async run() {
    this.#controller.abort();
    const controller = (this.#controller = new AbortController());
    const { signal } = controller;
    this.#parts.outcome.setAttribute("aria-busy", "true");
    try {
      const body = this.#spec.request(this.form.elements);
      this.#showRequest(body);
      const onWait = (why) => this.#say(`Not ready: ${why}. This is sent again as soon as it is.`, "waiting");
      const { text, headers } = await this.#api.post(this.#spec.route, body, { signal, onWait });
      signal.throwIfAborted();
      this.#showAnswer(text, headers, body);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    } finally {
      if (!signal.aborted) this.#parts.outcome.removeAttribute("aria-busy");
    }
  }

  /** For a model that lacks the head: nothing can be sent. */
  disable(why) {
    this.#controller.abort();
    this.#parts.outcome.removeAttribute("aria-busy");
    this.form.querySelector("fieldset").disabled = true;
    this.#parts.exchange.hidden = true;
    this.#clear();
    this.#say(why, "missing");
  }

  /** The request that the form would send, until one was. */
  draft() {
    this.#draft();
  }

  #draft() {
    if (this.#wasSent) return;
    try {
      this.#parts.request.textContent = this.#api.curl(this.#spec.route, this.#spec.request(this.form.elements));
    } catch {
      this.#parts.request.textContent = "";
    }
  }

  #showRequest(body) {
    this.#wasSent = true;
    this.#parts.request.textContent = this.#api.curl(this.#spec.route, body);
  }

  #showAnswer(text, headers, body) {
    const answer = parsed(text);
    const { summary, result } = this.#spec.show(answer, body);
    const hadFocus = this.#parts.result.contains(document.activeElement);
    this.#parts.result.replaceChildren(result);
    if (hadFocus) result.querySelector("button")?.focus();
    this.#parts.cost.textContent = cost(headers);
    this.#quote(text);
    this.#say(summary, "done");
  }

  #fail(error) {
    this.#clear();
    this.#quote(error.body ?? "");
    this.#say(error.message, "failed");
  }

  #clear() {
    this.#parts.result.replaceChildren();
    this.#parts.cost.textContent = "";
  }

  /** To be read; what is copied is the whole of it. */
  #quote(text) {
    const answer = parsed(text);
    this.#parts.answer.textContent = answer === undefined ? text : pretty(answer);
    this.#parts.answer.whole = text;
  }

  #say(message, kind) {
    this.#parts.message.textContent = message;
    this.#parts.message.dataset.kind = kind;
  }

  #offerExamples() {
    for (const [label, values] of Object.entries(this.#spec.examples)) {
      const button = element("button", { type: "button", className: "quiet" }, label);
      button.addEventListener("click", () => {
        for (const [name, value] of Object.entries(values)) this.form.elements[name].value = value;
        this.run();
      });
      this.#parts.examples.append(button);
    }
  }

  #offerCopies() {
    for (const code of this.section.querySelectorAll(".code")) {
      const button = code.querySelector("button");
      const pre = code.querySelector("pre");
      button.setAttribute("aria-label", `Copy the ${pre.className}`);
      button.addEventListener("click", async () => {
        const isCopied = await copied(pre);
        button.textContent = isCopied ? "Copied" : "Press Ctrl-C";
        setTimeout(() => (button.textContent = "Copy"), 2000);
      });
    }
  }
}

/** Enter where a line break means nothing, Ctrl-Enter everywhere; not while an input method composes a character. */
function submitByKey(event) {
  if (event.key !== "Enter" || event.isComposing || event.target.tagName !== "TEXTAREA") return;
  const isEnough = "enterSubmits" in event.target.dataset && !event.shiftKey;
  if (!isEnough && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  event.currentTarget.requestSubmit();
}

function cost(headers) {
  const number = (name) => Number(headers.get(name) ?? 0);
  const tokens = number("x-compute-tokens");
  const truncated = number("x-truncated");
  return [
    `${number("x-total-time").toFixed(1)} ms in total`,
    `${number("x-inference-time").toFixed(1)} ms in the model`,
    `${tokens} ${tokens === 1 ? "token" : "tokens"}`,
    ...(truncated ? [`${truncated} ${truncated === 1 ? "text" : "texts"} cut to the model's limit`] : []),
  ].join(" · ");
}

/** Copies what the block stands for; without a secure context browsers lend no clipboard, so it is selected at least. */
async function copied(pre) {
  try {
    await navigator.clipboard.writeText(pre.whole || pre.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return false;
  }
}
