// The service as the panels see it: addresses relative to the page, the API key, errors, and waiting until it is ready.

const KEY_NAME = "bert-service-api-key";
const POLL_MILLISECONDS = 1000;

/** An answer that is not 200, with its body; `status` is 0 where there was none at all. */
export class ApiError extends Error {
  constructor(status, message, body = "") {
    super(message);
    this.status = status;
    this.body = body;
  }
}

export class Api {
  #key = storedKey();
  #keyIsNeeded = false;

  /** Called when the service refuses the key, or the lack of one. */
  onUnauthorized = () => {};

  get hasKey() {
    return this.#key !== "";
  }

  useKey(key) {
    this.#key = key;
    try {
      sessionStorage.setItem(KEY_NAME, key);
    } catch {
      // A browser that blocks storage: the key lives as long as the page.
    }
  }

  async info() {
    return (await this.#fetch("info", {})).json();
  }

  /**
   * Sends a request, again and again while the model is not ready.
   *
   * onWait: told why there is no answer yet.
   */
  async post(route, body, { signal, onWait }) {
    for (;;) {
      try {
        const response = await this.#fetch(route, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
          signal,
        });
        return { text: await response.text(), headers: response.headers };
      } catch (error) {
        if (error.status !== 503) throw error;
        onWait(error.message);
        await this.#untilReady(signal);
      }
    }
  }

  /** The same request for a POSIX shell. */
  curl(route, body) {
    const parts = [`curl ${quoted(new URL(route, document.baseURI).href)}`, "-H 'content-type: application/json'"];
    if (this.#keyIsNeeded || this.hasKey) parts.push('-H "authorization: Bearer $API_KEY"');
    parts.push(`-d ${quoted(JSON.stringify(body))}`);
    return parts.join(" \\\n  ");
  }

  async #fetch(route, options) {
    const headers = { ...options.headers };
    if (this.hasKey) headers.authorization = `Bearer ${utf8Bytes(this.#key)}`;
    let response;
    try {
      response = await fetch(route, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The server does not answer.");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      this.#keyIsNeeded = true;
      this.onUnauthorized();
    }
    const body = await response.text();
    throw new ApiError(response.status, reason(response, body), body);
  }

  async #untilReady(signal) {
    for (let isReady = false; !isReady; ) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
      signal.throwIfAborted();
      isReady = await fetch("health/ready", { signal, cache: "no-store" }).then(
        (response) => response.ok,
        () => false,
      );
    }
  }
}

/** The service's own words; a proxy in front of it may have others. */
function reason(response, body) {
  const said = parsed(body)?.error ?? `The server answered ${response.status} ${response.statusText}`.trim();
  const seconds = response.status === 429 && response.headers.get("retry-after");
  return seconds ? `${said}; try again in ${seconds} s` : said;
}

/** undefined if it is not JSON. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function storedKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) ?? "";
  } catch {
    return "";
  }
}

/** Headers take no characters past U+00FF, so a key goes as its UTF-8 bytes. */
function utf8Bytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
