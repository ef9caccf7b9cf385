// Elements and texts. What a user or the service wrote becomes text nodes, never markup.

/** An element; of `properties`, those with a dash are attributes. */
export function element(name, properties = {}, ...children) {
  const created = document.createElement(name);
  for (const [property, value] of Object.entries(properties)) {
    if (property.includes("-")) created.setAttribute(property, value);
    else created[property] = value;
  }
  created.append(...children);
  return created;
}

/** The length of a bar, or the depth of a colour: a style rule reads `--share`, from 0 to 1. */
export function withShare(target, share) {
  target.style.setProperty("--share", Math.min(1, Math.max(0, share)).toFixed(4));
  return target;
}

/** What a bar says: a word or text, its share of 1, and the bar itself. */
export function barParts(text, share) {
  return [
    element("span", { className: "word", dir: "auto" }, text),
    element("span", { className: "share" }, percent(share)),
    withShare(element("span", { className: "bar" }), share),
  ];
}

export function percent(share) {
  return share >= 0.0005 || share === 0 ? `${(share * 100).toFixed(1)}%` : `${(share * 100).toExponential(0)}%`;
}

/** The lines that hold something. */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

const LINE_LENGTH = 88;
const SHOWN_NUMBERS = 4;

/** JSON to read: short values on one line, and of a vector the first numbers. */
export function pretty(value, indent = "") {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}  `;
  let parts, brackets;
  if (Array.isArray(value)) {
    brackets = "[]";
    parts = isVector(value)
      ? [...value.slice(0, SHOWN_NUMBERS), `… ${value.length - SHOWN_NUMBERS} more numbers`]
      : value.map((item) => pretty(item, inner));
  } else {
    brackets = "{}";
    parts = Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${pretty(item, inner)}`);
  }
  const oneLine = brackets[0] + parts.join(", ") + brackets[1];
  if (!oneLine.includes("\n") && indent.length + oneLine.length <= LINE_LENGTH) return oneLine;
  return `${brackets[0]}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${brackets[1]}`;
}

function isVector(value) {
  return value.length > 2 * SHOWN_NUMBERS && value.every((item) => typeof item === "number");
}
