// Similarity: a table of the cosines between all texts, coloured by value.

import { element, lines, withShare } from "./dom.js";
import { Panel } from "./panel.js";

const MOST_TEXTS = 40;

export function similarityPanel(section, api) {
  return new Panel(section, {
    api,
    route: "embed",
    examples: {
      "two topics": {
        texts: [
          "The cat sat on the mat.",
          "A kitten rested on the rug.",
          "The bank raised its interest rate.",
          "Borrowing money became more expensive.",
        ].join("\n"),
      },
      "one word, two senses": {
        texts: [
          "He sat on the bank of the river.",
          "She walked along the shore of the stream.",
          "He took his money to the bank.",
          "She opened an account for her savings.",
        ].join("\n"),
      },
    },
    request: ({ texts }) => {
      const inputs = lines(texts.value);
      if (inputs.length > MOST_TEXTS) throw new Error(`${inputs.length} texts; this page compares at most ${MOST_TEXTS}`);
      return { inputs };
    },
    show: (vectors, { inputs }) => heatMap(inputs, cosines(vectors)),
  });
}

/** The service gives vectors of length 1. */
function cosines(vectors) {
  return vectors.map((a) => vectors.map((b) => a.reduce((sum, value, index) => sum + value * b[index], 0)));
}

function heatMap(texts, values) {
  const pairs = values.flatMap((row, i) => row.slice(0, i).map((value, j) => ({ value, i, j })));
  const nearest = pairs.reduce((best, pair) => (best && best.value >= pair.value ? best : pair), null);
  // Some models put all texts close together: colours span what there is, and the caption says what.
  const least = Math.min(0.99, ...pairs.map(({ value }) => value));
  const scale = pairs.length ? `Colours from ${cosine(least)} to 1.00` : "";
  const header = element("tr", {}, element("td"), ...texts.map(columnHeader));
  const rows = values.map((row, index) => {
    const cells = row.map((value) => withShare(element("td", {}, cosine(value)), (value - least) / (1 - least)));
    return element("tr", {}, rowHeader(texts[index], index), ...cells);
  });
  const table = element(
    "table",
    { className: "heat" },
    element("caption", {}, scale),
    element("thead", {}, header),
    element("tbody", {}, ...rows),
  );
  const frame = { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Cosine similarities" };
  return {
    summary: nearest
      ? `Nearest, ${cosine(nearest.value)}: texts ${nearest.j + 1} and ${nearest.i + 1}`
      : "One text is only like itself",
    result: element("div", frame, table),
  };
}

/** Two digits; zero has no sign. */
function cosine(value) {
  return (Math.round(value * 100) / 100 || 0).toFixed(2);
}

function columnHeader(text, index) {
  return element("th", { scope: "col", title: text }, `${index + 1}`, element("span", { className: "unseen" }, ` ${text}`));
}

function rowHeader(text, index) {
  const number = element("span", { className: "number" }, `${index + 1}`);
  const line = element("div", {}, number, element("span", { dir: "auto" }, text));
  return element("th", { scope: "row", title: text }, line);
}
