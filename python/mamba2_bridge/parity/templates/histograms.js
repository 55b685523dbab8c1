// How errors are distributed, for each quantity and dtype on the same axis.

const HISTOGRAM = { width: 340, height: 180 };

function histogram(title, results, low, high) {
  const bins = high - low + 2; // decades between one for equality and one for what is not finite
  const counts = Array(bins).fill(0);
  for (const { badness } of results) {
    if (badness === 0) counts[0] += 1;
    else if (!Number.isFinite(badness)) counts[bins - 1] += 1;
    else counts[1 + Math.min(Math.max(Math.ceil(Math.log10(badness)) - 1, low), high - 1) - low] += 1;
  }
  const [left, right] = [MARGIN.left, HISTOGRAM.width - MARGIN.right];
  const [top, bottom] = [MARGIN.top, HISTOGRAM.height - MARGIN.bottom];
  const wide = (right - left) / bins;
  const most = Math.max(...counts);
  const y = (n) => bottom - (n / most) * (bottom - top);
  const bars = counts.map((n, i) => {
    if (n === 0) return null;
    const decade = low + i - 1;
    const wrong = i === bins - 1 || (i > 0 && decade >= 0);
    const where = i === 0 ? "equal" : i === bins - 1 ? "not finite" : `1e${decade} to 1e${decade + 1} times the bound`;
    const box = { x: left + i * wide + 0.5, width: Math.max(wide - 1, 1), y: Math.min(y(n), bottom - 1.5), height: Math.max(bottom - y(n), 1.5) };
    return svg("g", {},
      svg("rect", { ...box, class: wrong ? "bar wrong" : "bar" }),
      wrong ? svg("rect", { ...box, fill: "url(#hatch)" }) : null,
      svg("title", {}, `${where}: ${count(n, "tensor")}`));
  });
  const every = Math.ceil((high - low) / 7);
  const ticks = [[left + wide / 2, "="], [right - wide / 2, "∞"]];
  for (let power = Math.ceil(low / every) * every; power <= high; power += every) {
    const x = left + (power - low + 1) * wide;
    if (x < right - wide - 8 && x > left + wide + 8) ticks.push([x, String(power)]);
  }
  const bound = left + (1 - low) * wide;
  const equal = counts[0];
  const wrong = results.filter((result) => !result.passed).length;
  const summary = `${count(results.length, "tensor")}, ${equal.toLocaleString("en")} equal, ${wrong.toLocaleString("en")} wrong`;
  const drawing = svg(
    "svg", { viewBox: `0 0 ${HISTOGRAM.width} ${HISTOGRAM.height}`, role: "img", "aria-label": `${title}: ${summary}` },
    yAxis({ ticks: [[y(0), "0"], [y(most), most.toLocaleString("en")]] }, right),
    bars,
    svg("line", { class: "bound", x1: bound, x2: bound, y1: top, y2: bottom }),
    xAxis({ ticks }, bottom, "log10(error / bound)", (left + right) / 2),
  );
  return el("figure", {}, el("figcaption", {}, el("strong", {}, title), `: ${summary}`), drawing);
}

function startHistograms() {
  const logs = RESULTS.map((result) => result.badness).filter((value) => value > 0 && Number.isFinite(value)).map(Math.log10);
  const low = Math.max(-12, logs.reduce((least, log) => Math.min(least, Math.floor(log)), -2));
  const high = Math.min(18, logs.reduce((most, log) => Math.max(most, Math.ceil(log)), 2));
  const groups = new Map();
  for (const result of RESULTS) {
    const key = `${result.quantity}, ${short(result.dtype)}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(result);
  }
  const charts = document.getElementById("histograms");
  // One pattern for all: it is found by its name wherever it stands in the page.
  charts.append(svg("svg", { width: 0, height: 0, "aria-hidden": "true", class: "defs" },
    svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 5 }))));
  for (const [title, results] of groups) charts.append(histogram(title, results, low, high));
}

startHistograms();
