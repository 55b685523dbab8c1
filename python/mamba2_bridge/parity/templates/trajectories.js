// The error of each parameter, and of each moment of AdamW, over optimizer steps.

const TRAJECTORY = { width: 460, height: 250 };
const NAMED = 6;
const KINDS = { param: "parameters", exp_avg: "first moments", exp_avg_sq: "second moments" };

// The curves of one kind, the worst by its bound first.
function curvesOf(results) {
  const curves = new Map();
  for (const result of results) {
    const name = result.tensor.slice(result.tensor.indexOf(".") + 1);
    if (!curves.has(name)) curves.set(name, { name, points: [], badness: 0, error: 0 });
    const curve = curves.get(name);
    const error = result.error === null ? Infinity : result.error;
    curve.points.push([result.step, error]);
    curve.badness = Math.max(curve.badness, result.badness);
    curve.error = Math.max(curve.error, error);
  }
  return [...curves.values()].sort((a, b) => (b.badness === a.badness ? 0 : b.badness > a.badness ? 1 : -1));
}

function trajectoryChart(kind, results) {
  const curves = curvesOf(results);
  const bounds = unique(results.map((result) => result.bound).filter((bound) => bound !== null));
  const right = TRAJECTORY.width - MARGIN.right;
  const bottom = TRAJECTORY.height - MARGIN.bottom;
  const x = stepAxis(unique(results.map((result) => result.step)), MARGIN.left + 8, right - 8);
  const y = logAxis([...curves.flatMap((curve) => curve.points.map(([, error]) => error)), ...bounds], bottom - 4, MARGIN.top + 4);
  const lines = curves.map((curve, i) => {
    const points = curve.points.map(([step, error]) => [x.at(step), y.at(error)]);
    const kindOf = i < NAMED ? `line series s${i}` : "line other";
    const dots = i < NAMED ? points.map(([cx, cy]) => svg("circle", { class: `dot s${i}`, cx, cy, r: 2.5 })) : [];
    return svg("g", { class: "curve" }, path(points, { class: kindOf }), dots, svg("title", {}, `${curve.name}: at most ${figure(curve.error)}`));
  });
  const wrong = curves.filter((curve) => curve.badness > 1).length;
  const summary = `${count(curves.length, "curve")}, ${wrong ? `${wrong} over the bound` : "all within the bound"}`;
  const drawing = svg(
    "svg", { viewBox: `0 0 ${TRAJECTORY.width} ${TRAJECTORY.height}`, role: "img", "aria-label": `${kind}: ${summary}` },
    yAxis(y, right),
    bounds.map((bound) => svg("line", { class: "bound", x1: MARGIN.left, x2: right, y1: y.at(bound), y2: y.at(bound) }, svg("title", {}, `bound ${figure(bound)}`))),
    lines.reverse(), // the worst on top
    xAxis(x, bottom, "optimizer step", (MARGIN.left + right) / 2),
  );
  const legend = curves.slice(0, NAMED).map((curve, i) => el("li", { onmouseenter: () => drawing.classList.add("only", `only${i}`), onmouseleave: () => drawing.classList.remove("only", `only${i}`) },
    svg("svg", { class: "swatch", viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("path", { class: `line series s${i}`, d: "M0,4L28,4" })),
    el("code", {}, curve.name), ` ${figure(curve.error)}${curve.badness > 1 ? " ✗" : ""}`));
  return el("figure", {}, el("figcaption", {}, el("strong", {}, KINDS[kind] || kind), `: ${summary}`), drawing, el("ul", { class: "series-names" }, legend));
}

function startTrajectories() {
  const steps = RESULTS.filter((result) => result.phase === "step" && result.tensor.includes("."));
  if (steps.length === 0) return;
  document.getElementById("trajectories-section").hidden = false;
  const choice = document.getElementById("trajectory-case");
  const key = (result) => JSON.stringify([result.case, result.dtype]);
  for (const value of unique(steps.map(key))) {
    const [name, dtype] = JSON.parse(value);
    const wrong = steps.some((result) => key(result) === value && !result.passed);
    choice.append(option(value, `${mark(!wrong)} ${name}, ${short(dtype)}`));
  }
  const show = () => {
    const kinds = new Map();
    for (const result of steps.filter((one) => key(one) === choice.value)) {
      const kind = result.tensor.slice(0, result.tensor.indexOf("."));
      if (!kinds.has(kind)) kinds.set(kind, []);
      kinds.get(kind).push(result);
    }
    document.getElementById("trajectory-charts").replaceChildren(...[...kinds].map(([kind, results]) => trajectoryChart(kind, results)));
  };
  const first = steps.find((result) => !result.passed);
  if (first) choice.value = key(first);
  choice.addEventListener("change", show);
  show();
}

startTrajectories();
