// All tensors: sorted by a column, filtered, a page at a time.

const PAGE = 100;
const COLUMNS = [
  ["tensor", "tensor", String],
  ["passed", "verdict", (passed) => (passed ? "✓ pass" : "✗ wrong")],
  ["case", "case", String],
  ["dtype", "dtype", short],
  ["mode", "mode", String],
  ["phase", "phase", String],
  ["step", "step", (step) => (step ? String(step) : "–")],
  ["stage", "stage", String],
  ["error", "error", figure, "max|got − want| / max|want|"],
  ["bound", "bound", figure, "the largest error that is a pass"],
  ["badness", "× bound", figure, "error / bound"],
  ["noise", "× noise floor", figure, "error / what the reference itself loses in fp32"],
  ["max_abs", "max abs", figure, "max|got − want|"],
  ["index", "index", String, "of the element that differs most"],
  ["got", "got", exact],
  ["want", "want", exact],
  ["rms", "rms", figure, "root mean square of got − want over that of want"],
  ["cosine", "cosine", figure],
  ["norm_ratio", "norm ratio", figure, "|got| / |want|"],
  ["sign_agreement", "sign agreement", figure, "share of elements whose signs agree"],
  ["ulp", "ulp", figure, "largest distance in units of the last place"],
  ["mismatches", "mismatches", figure, "share of elements off by more than the bound"],
  ["nonfinite_got", "NaN/inf got", figure],
  ["nonfinite_want", "NaN/inf want", figure],
  ["shape", "shape", String],
  ["quantity", "quantity", String],
  ["problem", "problem", (problem) => problem || ""],
];
const NUMERIC = new Set([...NUMBERS, "step"]);
const CHOICES = ["case", "dtype", "mode", "phase"];

const table = { sort: null, descending: false, stage: null, page: 0, rows: [], choices: {} };

// NaN is worse than infinity; what isn't there comes last, whichever way is up.
function compareBy(column, descending) {
  const sign = descending ? -1 : 1;
  const rank = (value) => (value === null ? -Infinity : Number.isNaN(value) ? Infinity : value);
  return (a, b) => {
    const [x, y] = [a[column], b[column]];
    if ((x === null) !== (y === null)) return x === null ? 1 : -1;
    if (!NUMERIC.has(column)) return sign * String(x).localeCompare(String(y), "en", { numeric: true });
    if (Number.isNaN(x) !== Number.isNaN(y)) return sign * (Number.isNaN(x) ? 1 : -1);
    return rank(x) === rank(y) ? 0 : sign * (rank(x) < rank(y) ? -1 : 1);
  };
}

function select() {
  const words = document.getElementById("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const verdict = table.choices.verdict.value;
  table.rows = RESULTS.filter((result) => {
    if (verdict && result.passed !== (verdict === "pass")) return false;
    if (table.stage !== null && result.stage !== table.stage) return false;
    if (CHOICES.some((name) => table.choices[name].value && result[name] !== table.choices[name].value)) return false;
    const text = `${result.case} ${result.tensor} ${result.stage} ${result.problem || ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (table.sort !== null) table.rows.sort(compareBy(table.sort, table.descending));
  table.page = 0;
  drawTable();
}

function drawTable() {
  const start = table.page * PAGE;
  const rows = table.rows.slice(start, start + PAGE);
  document.querySelector("#table tbody").replaceChildren(
    ...rows.map((result) =>
      el("tr", { class: result.passed ? null : "wrong" }, COLUMNS.map(([column, , write], i) => {
        const text = write(result[column]);
        if (i === 0) return el("th", { scope: "row", title: text }, text);
        const kind = column === "passed" ? (result.passed ? "pass" : "fail") : NUMERIC.has(column) ? "number" : null;
        return el("td", { class: kind }, text);
      }))),
  );
  for (const header of document.querySelectorAll("#table thead th")) {
    const sorted = header.dataset.column === table.sort;
    header.setAttribute("aria-sort", sorted ? (table.descending ? "descending" : "ascending") : "none");
  }
  const range = rows.length ? `${start + 1} to ${start + rows.length} of ` : "";
  document.getElementById("shown").textContent =
    `${range}${count(table.rows.length, "tensor")}${table.rows.length < RESULTS.length ? `, ${RESULTS.length.toLocaleString("en")} in all` : ""}`;
  document.getElementById("previous").disabled = table.page === 0;
  document.getElementById("next").disabled = start + PAGE >= table.rows.length;
  document.querySelector(".tall").scrollTop = 0;
}

function setStage(stage) {
  table.stage = stage;
  const chip = document.getElementById("stage-chip");
  chip.hidden = stage === null;
  chip.textContent = `stage ${stage} ✕`;
  chip.setAttribute("aria-label", `stage ${stage}: show all stages again`);
}

// Show the tensors of the stage, phase and mode of a result.
function showStage(result) {
  setStage(result.stage);
  for (const name of CHOICES) table.choices[name].value = result[name];
  table.choices.verdict.value = "";
  document.getElementById("filter-text").value = "";
  select();
  document.getElementById("tensors").scrollIntoView();
}

function sortBy(column) {
  // Large is what one looks for in numbers, so that comes first; a third time gives the order of computing back.
  const firstWay = NUMERIC.has(column);
  if (table.sort !== column) [table.sort, table.descending] = [column, firstWay];
  else if (table.descending === firstWay) table.descending = !firstWay;
  else table.sort = null;
  select();
}

function startTable() {
  document.querySelector("#table thead").append(
    el("tr", {}, COLUMNS.map(([column, label, , title]) =>
      el("th", { scope: "col", "data-column": column, "aria-sort": "none", class: NUMERIC.has(column) ? "number" : null },
        el("button", { type: "button", title: title || null, onclick: () => sortBy(column) }, label)))),
  );
  const filters = document.getElementById("filters");
  const choose = (name, options) => {
    table.choices[name] = el("select", { onchange: select }, option("", "all"), options);
    filters.append(el("label", {}, `${name} `, table.choices[name]));
  };
  choose("verdict", [option("fail", "✗ wrong"), option("pass", "✓ pass")]);
  for (const name of CHOICES) {
    const write = name === "dtype" ? short : String;
    choose(name, unique(RESULTS.map((result) => result[name])).map((value) => option(value, write(value))));
  }
  filters.append(el("button", { type: "button", id: "stage-chip", hidden: true, onclick: () => { setStage(null); select(); } }));
  document.getElementById("filter-text").addEventListener("input", select);
  document.getElementById("previous").addEventListener("click", () => { table.page -= 1; drawTable(); });
  document.getElementById("next").addEventListener("click", () => { table.page += 1; drawTable(); });
  if (RESULTS.some((result) => !result.passed)) table.choices.verdict.value = "fail";
  select();
}

startTable();
