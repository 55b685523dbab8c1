// Axes and lines that the charts share.

const MARGIN = { left: 52, right: 12, top: 10, bottom: 34 };

// Where a logarithmic axis puts its values: powers of ten between two rows, zero at one end and infinity at the other.
function logAxis(values, from, to) {
  const finite = values.filter((value) => value > 0 && Number.isFinite(value)).map(Math.log10);
  const low = Math.floor(Math.min(...finite, Infinity) === Infinity ? -16 : Math.min(...finite));
  const high = Math.max(low + 1, Math.ceil(finite.length ? Math.max(...finite) : -15));
  const zero = values.some((value) => value === 0);
  const infinite = values.some((value) => !Number.isFinite(value));
  const pad = Math.sign(to - from) * Math.max(Math.abs(to - from) * 0.1, 15); // room for a label between 0 and the lowest power
  const start = zero ? from + pad : from;
  const end = infinite ? to - pad : to;
  const at = (power) => start + ((power - low) / (high - low)) * (end - start);
  const step = Math.ceil((high - low) / 5);
  const ticks = [];
  if (zero) ticks.push([from, "0"]);
  for (let power = low; power <= high; power += step) ticks.push([at(power), `1e${power}`]);
  if (infinite) ticks.push([to, "∞"]);
  return {
    ticks,
    at: (value) => (value === 0 ? from : Number.isFinite(value) ? at(Math.log10(value)) : to),
  };
}

function linearAxis(values, from, to, ticks = 4) {
  const finite = values.filter(Number.isFinite);
  let low = finite.length ? Math.min(...finite) : 0;
  let high = finite.length ? Math.max(...finite) : 1;
  if (low === high) [low, high] = [low - Math.abs(low) * 0.1 - 1e-12, high + Math.abs(high) * 0.1 + 1e-12];
  const size = 10 ** Math.floor(Math.log10((high - low) / ticks));
  const step = size * [1, 2, 5, 10].find((factor) => (high - low) / (size * factor) <= ticks);
  const at = (value) => from + ((value - low) / (high - low)) * (to - from);
  const marks = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i += 1) {
    marks.push([at(i * step), String(Number((i * step).toPrecision(6)))]);
  }
  return { ticks: marks, at };
}

// Whole numbers, as many as there is room for.
function stepAxis(steps, from, to) {
  const [low, high] = [Math.min(...steps), Math.max(...steps)];
  const at = (value) => (low === high ? (from + to) / 2 : from + ((value - low) / (high - low)) * (to - from));
  const every = Math.ceil((high - low + 1) / 10);
  return { at, ticks: steps.filter((step) => (step - low) % every === 0).map((step) => [at(step), String(step)]) };
}

function yAxis(axis, right) {
  return axis.ticks.map(([y, label]) =>
    svg("g", {}, svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }),
      svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, label)));
}

function xAxis(axis, y, title, middle) {
  return [
    axis.ticks.map(([x, label]) => svg("text", { x, y: y + 15, "text-anchor": "middle" }, label)),
    svg("text", { class: "axis", x: middle, y: y + 30, "text-anchor": "middle" }, title),
  ].flat();
}

// A line through the points, broken where a value is not a number.
function path(points, attributes, ...children) {
  let d = "";
  let open = false;
  for (const [x, y] of points) {
    if (Number.isFinite(y)) d += `${open ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`;
    open = Number.isFinite(y);
  }
  return svg("path", { ...attributes, d }, ...children);
}
