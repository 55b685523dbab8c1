// What was compared, how numbers are written, and elements.

const DATA = JSON.parse(document.getElementById("data").textContent);
const NONFINITE = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const NUMBERS = [
  "error", "bound", "badness", "noise", "max_abs", "got", "want", "rms", "cosine", "norm_ratio", "sign_agreement",
  "ulp", "mismatches", "nonfinite_got", "nonfinite_want",
];

function number(value) {
  return typeof value === "string" ? NONFINITE[value] : value;
}

// One object a result, in the order in which they were computed.
const RESULTS = DATA.columns.tensor.map((_, i) => {
  const result = { number: i };
  for (const name in DATA.columns) result[name] = DATA.columns[name][i];
  for (const name of NUMBERS) result[name] = number(result[name]);
  return result;
});

function figure(value) {
  if (value === null) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e5) return String(value);
  return size < 1e-3 || size >= 1e5 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

function exact(value) {
  return value === null || !Number.isFinite(value) ? figure(value) : String(value);
}

function short(dtype) {
  return dtype.replace("float", "fp");
}

function count(n, unit) {
  return `${n.toLocaleString("en")} ${unit}${n === 1 ? "" : "s"}`;
}

function unique(values) {
  return [...new Set(values)];
}

// Texts become text nodes: no name is ever read as HTML.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function option(value, label) {
  return el("option", { value }, label);
}
