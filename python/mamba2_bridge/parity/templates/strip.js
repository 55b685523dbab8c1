// The order of stages as a strip: a column a stage, errors accumulated above, each stage on its own below.

const LEVELS = [
  [0, "equal"], [1e-2, "≤ 0.01"], [1e-1, "≤ 0.1"], [1, "≤ 1"], [1e3, "≤ 1e3"], [1e6, "≤ 1e6"], [1e10, "≤ 1e10"],
  [Infinity, "more"],
];
const MODES = { accumulated: "errors accumulated", isolated: "each stage on its own" };
const PHASES = { forward: "forward", backward: "backward", step: "optimizer" };
const UNLABELLED = 24; // stages of no layer; with more of them, names only show when one is pointed at

function level(badness) {
  return LEVELS.findIndex(([most]) => badness <= most);
}

function mark(passed) {
  return passed ? "✓" : "✗";
}

// layers.3 for all that belongs to a layer; null for a stage of its own.
function layer(name) {
  const found = /^(.+?\.\d+)(?=[.\s]|$)/.exec(name);
  return found && found[1];
}

function grouped(rows) {
  const groups = [];
  for (const row of rows) {
    const of = layer(row.name);
    const last = groups[groups.length - 1];
    if (of !== null && last && last.layer === of) last.rows.push(row);
    else groups.push({ layer: of, rows: [row] });
  }
  return groups;
}

function showDetail(run, phase, row, mode) {
  const cell = row[mode];
  const first = RESULTS[run.divergence];
  const here = row.diverges && first.mode === mode;
  const result = here ? first : RESULTS[cell.worst];
  const facts = [];
  if (result.got !== null) facts.push(["got", exact(result.got)], ["want", exact(result.want)]);
  if (result.error !== null) facts.push(["error", figure(result.error)], ["bound", figure(result.bound)]);
  if (result.error !== null) facts.push(["times the bound", figure(result.badness)]);
  if (result.noise !== null) facts.push(["times the noise floor", figure(result.noise)]);
  if (result.hint) facts.push(["looks like", result.hint]);
  if (result.problem !== null) facts.push(["problem", result.problem]);
  document.getElementById("detail").replaceChildren(
    el(
      "p", {},
      el("strong", { class: cell.wrong ? "fail" : "pass" }, `${mark(!cell.wrong)} ${row.name}`),
      ` ${PHASES[phase]}, ${MODES[mode]}: `,
      cell.wrong ? `${cell.wrong} of ${count(cell.tensors, "tensor")} wrong` : `${count(cell.tensors, "tensor")}, all right`,
      here ? el("strong", { class: "fail" }, "; the first to go wrong, look here") : null,
    ),
    el("p", {}, here ? "first wrong: " : "worst: ", el("code", {}, `${result.tensor}${result.index === "[]" ? "" : result.index}`)),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("button", { type: "button", onclick: () => showStage(result) }, "show its tensors in the table"),
  );
}

function cellOf(run, phase, row, mode) {
  const cell = row[mode];
  if (cell === null) return el("span", { class: "cell none", title: "not run so" });
  const worst = RESULTS[cell.worst];
  const label = `${row.name}, ${PHASES[phase]}, ${MODES[mode]}: ${cell.wrong ? "wrong" : "right"}, `
    + `${figure(worst.badness)} times the bound${row.diverges ? ", the first to go wrong" : ""}`;
  const button = el(
    "button",
    { type: "button", class: `cell l${level(worst.badness)}`, "aria-label": label, title: label, tabindex: "-1" },
    cell.wrong ? "✗" : "",
  );
  button.addEventListener("focus", () => showDetail(run, phase, row, mode));
  button.addEventListener("mouseenter", () => showDetail(run, phase, row, mode));
  button.addEventListener("click", () => showDetail(run, phase, row, mode));
  return button;
}

// One stop of the tab key a strip; arrows go from stage to stage and between the modes.
function moveByArrows(strip, modes) {
  const columns = [...strip.querySelectorAll(".stage")].map((stage) => [...stage.querySelectorAll(".cell")]);
  const buttons = columns.flat().filter((cell) => cell.tagName === "BUTTON");
  const start = strip.querySelector(".first button") || buttons[0];
  if (start) start.tabIndex = 0;
  strip.addEventListener("keydown", (event) => {
    const x = columns.findIndex((column) => column.includes(document.activeElement));
    if (x < 0) return;
    const y = columns[x].indexOf(document.activeElement);
    const moves = {
      ArrowLeft: [x - 1, y], ArrowRight: [x + 1, y], ArrowUp: [x, y - 1], ArrowDown: [x, y + 1],
      Home: [0, y], End: [columns.length - 1, y],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [toX, toY] = moves[event.key];
    const to = columns[toX] && columns[toX][Math.min(Math.max(toY, 0), modes.length - 1)];
    if (!to || to.tagName !== "BUTTON") return;
    document.activeElement.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
}

function strip(run, phase, rows) {
  const modes = Object.keys(MODES).filter((mode) => rows.some((row) => row[mode] !== null));
  const groups = grouped(rows);
  const labelled = groups.filter((group) => group.layer === null).length <= UNLABELLED;
  const node = el("div", { class: "strip", role: "group", "aria-label": `${PHASES[phase]}, stages in order` });
  for (const group of groups) {
    const name = group.layer === null && labelled ? group.rows[0].name : group.layer;
    const stages = group.rows.map((row) =>
      el(
        "div", { class: row.diverges ? "stage first" : "stage" },
        modes.map((mode) => cellOf(run, phase, row, mode)),
        row.diverges ? el("span", { class: "here", "aria-hidden": "true" }, "▲ first") : null,
      ));
    const kind = group.layer === null && labelled ? "group single" : "group";
    node.append(el("div", { class: kind }, el("div", { class: "group-name", title: name || "" }, name || "\u00a0"),
      el("div", { class: "cells" }, stages)));
  }
  moveByArrows(node, modes);
  const wrong = rows.filter((row) => modes.some((mode) => row[mode] && row[mode].wrong)).length;
  const unit = phase === "step" ? "step" : "stage";
  return el(
    "div", { class: "phase" },
    el("h3", {}, PHASES[phase], el("span", { class: "quiet" }, ` ${count(rows.length, unit)}, ${wrong ? `${wrong} with wrong tensors` : "all right"}`)),
    node,
  );
}

function showRun(run) {
  const phases = Object.entries(run.phases);
  document.getElementById("strips").replaceChildren(...phases.map(([phase, rows]) => strip(run, phase, rows)));
  const found = phases.flatMap(([phase, rows]) => rows.map((row) => [phase, row]));
  const [phase, row] = found.find(([, one]) => one.diverges) || found[0];
  const mode = row.diverges ? RESULTS[run.divergence].mode : row.accumulated ? "accumulated" : "isolated";
  showDetail(run, phase, row, mode);
}

function startStrips() {
  const cases = document.getElementById("strip-case");
  const dtypes = document.getElementById("strip-dtype");
  for (const name of unique(DATA.runs.map((run) => run.case))) {
    const wrong = DATA.runs.some((run) => run.case === name && run.divergence !== null);
    cases.append(option(name, `${mark(!wrong)} ${name}`));
  }
  const listDtypes = () => {
    const of = DATA.runs.filter((run) => run.case === cases.value);
    const wrong = of.find((run) => run.divergence !== null) || of[0];
    dtypes.replaceChildren(...of.map((run) => option(run.dtype, `${mark(run.divergence === null)} ${short(run.dtype)}`)));
    dtypes.value = wrong.dtype;
  };
  const show = () => showRun(DATA.runs.find((run) => run.case === cases.value && run.dtype === dtypes.value));
  cases.addEventListener("change", () => { listDtypes(); show(); });
  dtypes.addEventListener("change", show);
  const first = DATA.runs.find((run) => run.divergence !== null) || DATA.runs[0];
  cases.value = first.case;
  listDtypes();
  show();
  document.getElementById("legend").append(
    el("span", {}, "times the bound:"),
    ...LEVELS.map(([, label], i) => el("span", { class: "key" }, el("span", { class: `cell l${i}`, "aria-hidden": "true" }, i > 3 ? "✗" : ""), label)),
    el("span", {}, "above: errors accumulated; below: each stage fed the reference's tensors. Arrow keys go from stage to stage."),
  );
}

startStrips();
