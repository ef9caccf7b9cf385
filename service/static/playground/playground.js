// The page: the model's facts, its state, the API key, and the three panels.

import { Api } from "./api.js";
import { element } from "./dom.js";
import { fillMaskPanel } from "./fill_mask.js";
import { nextSentencePanel } from "./next_sentence.js";
import { similarityPanel } from "./similarity.js";

const RETRY_MILLISECONDS = 1000;
const HEADS = { pooler: "pooler", mlm: "masked LM", nsp: "next sentence" };

const byId = (id) => document.getElementById(id);
const api = new Api();
const fillMask = fillMaskPanel(byId("fill-mask"), api);
const panels = {
  fill_mask: { panel: fillMask.panel, head: "masked-LM" },
  next_sentence: { panel: nextSentencePanel(byId("next-sentence"), api), head: "next-sentence" },
  embed: { panel: similarityPanel(byId("embed"), api), head: "embedding" },
};
let attempts = 0;

/** Asks for the model's facts until they come, or a key is needed for them. */
async function connect() {
  const attempt = ++attempts;
  try {
    const info = await api.info();
    if (attempt === attempts) show(info);
  } catch (error) {
    if (attempt !== attempts || error.status === 401) return;
    state("waiting", error.status === 503 ? `Not ready: ${error.message}` : error.message);
    setTimeout(() => attempt === attempts && connect(), RETRY_MILLISECONDS);
  }
}

function show(info) {
  state("ready", "Ready");
  byId("model").textContent = info.model_id.split("/").at(-1);
  byId("facts").replaceChildren(...facts(info).map(fact));
  byId("facts").hidden = false;
  byId("version").textContent = `bert-service ${info.version}`;
  byId("key-form").hidden = true;
  byId("forget-key").hidden = !api.hasKey;
  fillMask.adaptTo(info);
  for (const [capability, { panel, head }] of Object.entries(panels)) {
    panel.draft();
    if (!info.capabilities[capability]) {
      panel.disable(`This checkpoint holds no ${head} head: POST /${panel.route} answers 501.`);
    }
  }
}

function facts(info) {
  const heads = Object.keys(HEADS).map((head) => (info.heads_missing.includes(head) ? "no " : "") + HEADS[head]);
  const million = (info.parameters / 1e6).toFixed(info.parameters < 1e7 ? 1 : 0);
  return [
    ...(info.revision ? [["Revision", info.revision]] : []),
    ["Device", info.device],
    ["Number format", info.dtype],
    ["Parameters", `${million} million`],
    ["Longest text", `${info.max_input_length} tokens`],
    ["Embedding", `${info.hidden_size} numbers, ${info.pooling}, up to ${info.max_embed_length} tokens`],
    ["Heads", heads.join(", ")],
  ];
}

function fact([name, value]) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}

function state(kind, text) {
  byId("state").dataset.state = kind;
  byId("state").textContent = text;
}

api.onUnauthorized = () => {
  state("waiting", api.hasKey ? "The API key is wrong" : "An API key is needed");
  byId("key-form").hidden = false;
  byId("forget-key").hidden = true;
};

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(byId("key").value.trim());
  byId("key").value = "";
  connect();
});

byId("forget-key").addEventListener("click", () => {
  api.useKey("");
  connect();
});

connect();
