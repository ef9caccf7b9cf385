// Fill-mask: the sentence with its gaps, and the predictions for each.

import { barParts, element, percent } from "./dom.js";
import { Panel } from "./panel.js";

export function fillMaskPanel(section, api) {
  let maskToken = "[MASK]";
  const panel = new Panel(section, {
    api,
    route: "fill-mask",
    examples: {
      "one gap": { text: "She drank a cup of [MASK].", targets: "" },
      "two gaps": { text: "The [MASK] barked at the [MASK].", targets: "" },
      "named words": { text: "Water turns to ice when it is [MASK].", targets: "cold, hot, frozen, wet" },
    },
    request: requestOf,
    show: (answer, body) => shown(answer, body.inputs),
  });
  const text = panel.form.elements.text;

  function requestOf({ text, top_k: topK, targets }) {
    const words = targets.value.split(",").map((word) => word.trim()).filter(Boolean);
    return words.length ? { inputs: text.value, targets: words } : { inputs: text.value, top_k: Number(topK.value) };
  }

  function shown(answer, sentence) {
    const masks = Array.isArray(answer[0]) ? answer : [answer];
    const gaps = gapsOf(sentence, masks);
    const lists = masks.map((predictions, index) => listOf(predictions, index, masks.length, gaps));
    const best = masks.map(([first]) => `${first.token_str}, ${percent(first.score)}`).join("; ");
    return {
      summary: `Most likely: ${best}`,
      result: element("div", {}, gaps.line, element("div", { className: "lists" }, ...lists)),
    };
  }

  /** The sentence as it was sent, with a word in each gap; `fill` puts another one there. */
  function gapsOf(sentence, masks) {
    const around = sentence.split(maskToken).map((part) => new Text(part));
    const line = element("p", { className: "sentence", dir: "auto" }, around[0]);
    if (around.length !== masks.length + 1) {
      line.hidden = true;
      return { line, fill() {} };
    }
    const originals = around.map((part) => part.data);
    const gaps = masks.map(() => element("mark"));
    gaps.forEach((gap, index) => line.append(gap, around[index + 1]));
    const fill = (index, word) => {
      const isContinuation = word.startsWith("##");
      around[index].data = isContinuation ? originals[index].trimEnd() : originals[index];
      gaps[index].textContent = isContinuation ? word.slice(2) : word;
    };
    masks.forEach(([first], index) => fill(index, first.token_str));
    return { line, fill };
  }

  function listOf(predictions, index, count, gaps) {
    const list = element("ol", { className: "bars" });
    let chosen = predictions[0];
    for (const prediction of predictions) {
      const button = element("button", { type: "button" }, ...barParts(prediction.token_str, prediction.score));
      const preview = () => gaps.fill(index, prediction.token_str);
      const restore = () => gaps.fill(index, chosen.token_str);
      button.addEventListener("pointerenter", preview);
      button.addEventListener("focus", preview);
      button.addEventListener("pointerleave", restore);
      button.addEventListener("blur", restore);
      button.addEventListener("click", () => {
        chosen = prediction;
        for (const other of list.querySelectorAll("button")) other.ariaPressed = String(other === button);
        choose(prediction);
      });
      list.append(element("li", {}, button));
    }
    const heading = count > 1 ? [element("h3", {}, `Gap ${index + 1}`)] : [];
    list.ariaLabel = count > 1 ? `Predictions for gap ${index + 1}` : "Predictions";
    return element("div", {}, ...heading, list);
  }

  /** The other gaps are predicted anew, since what is likely there depends on this one. */
  function choose(prediction) {
    text.value = prediction.sequence;
    if (prediction.sequence.includes(maskToken)) panel.run();
  }

  panel.form.querySelector(".insert").addEventListener("click", () => {
    text.setRangeText(maskToken, text.selectionStart, text.selectionEnd, "end");
    text.focus();
    panel.draft();
  });

  return {
    panel,
    adaptTo(info) {
      text.value = text.value.replaceAll(maskToken, info.mask_token);
      maskToken = info.mask_token;
      panel.form.querySelector(".mask-token").textContent = maskToken;
      panel.form.elements.top_k.max = info.max_top_k;
      panel.draft();
    },
  };
}
