// Next sentence: the verdict on a pair, or candidates in the order of how well they follow.

import { barParts, element, lines, percent } from "./dom.js";
import { Panel } from "./panel.js";

export function nextSentencePanel(section, api) {
  return new Panel(section, {
    api,
    route: "next-sentence",
    examples: {
      "a pair": { text: "He put the key in the lock.", candidates: "The door would not open." },
      "four candidates": {
        text: "She opened the oven to look at the bread.",
        candidates: [
          "Parliament adjourned until Tuesday.",
          "It had not risen at all.",
          "The engine has six cylinders.",
          "She closed the door and waited.",
        ].join("\n"),
      },
    },
    request: ({ text, candidates }) => {
      const seconds = lines(candidates.value);
      if (seconds.length > 1) return { text: text.value, candidates: seconds };
      return { inputs: { text: text.value, text_pair: seconds[0] ?? "" } };
    },
    show: (answer) => (Array.isArray(answer) ? ranking(answer) : verdict(answer)),
  });
}

function verdict(answer) {
  const says = answer.label === "is_next" ? "Follows" : "Does not follow";
  const bars = element("ul", { className: "bars", ariaLabel: "Probabilities" });
  bars.append(
    element("li", {}, ...barParts("follows", answer.is_next)),
    element("li", {}, ...barParts("does not follow", answer.not_next)),
  );
  return {
    summary: `${says}, ${percent(Math.max(answer.is_next, answer.not_next))}`,
    result: element("div", {}, element("p", { className: "verdict" }, says), bars),
  };
}

function ranking(candidates) {
  const bars = element("ol", { className: "bars ranked", ariaLabel: "Candidates, best first" });
  for (const { text, is_next: isNext } of candidates) bars.append(element("li", {}, ...barParts(text, isNext)));
  return { summary: `Follows best, ${percent(candidates[0].is_next)}: ${candidates[0].text}`, result: bars };
}
