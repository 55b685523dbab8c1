// The losses of both sides over optimizer steps, and below them how far they are apart.

const LOSSES = { width: 460, height: 330, split: 190 };

function lossChart(curve) {
  const [got, want] = [curve.got.map(number), curve.want.map(number)];
  const apart = got.map((value, i) => Math.abs(value - want[i]));
  const right = LOSSES.width - MARGIN.right;
  const bottom = LOSSES.height - MARGIN.bottom;
  const x = stepAxis(curve.steps, MARGIN.left + 8, right - 8);
  const loss = linearAxis([...got, ...want], LOSSES.split - 18, MARGIN.top + 14);
  const distance = logAxis(apart, bottom, LOSSES.split + 14);
  const points = (values, axis) => values.map((value, i) => [x.at(curve.steps[i]), Number.isFinite(value) ? axis.at(value) : NaN]);
  const dots = (values, axis, kind) => points(values, axis).filter(([, y]) => Number.isFinite(y)).map(([cx, cy], i) =>
    svg("circle", { class: kind, cx, cy, r: 2.5 }, svg("title", {}, exact(values.filter(Number.isFinite)[i]))));
  const broken = curve.steps.filter((_, i) => !Number.isFinite(got[i]) || !Number.isFinite(want[i]));
  const most = apart.some(Number.isNaN) ? NaN : Math.max(...apart);
  const title = `${curve.case}, ${short(curve.dtype)}`;
  const summary = `${count(curve.steps.length, "step")}, loss ${figure(got[0])} to ${figure(got[got.length - 1])}, losses differ by at most ${figure(most)}`;
  const drawing = svg(
    "svg", { viewBox: `0 0 ${LOSSES.width} ${LOSSES.height}`, role: "img", "aria-label": `${title}: ${summary}` },
    yAxis(loss, right),
    svg("text", { class: "axis", x: MARGIN.left, y: MARGIN.top + 2 }, "loss"),
    path(points(want, loss), { class: "line want" }),
    path(points(got, loss), { class: "line got" }),
    dots(got, loss, "got"),
    yAxis(distance, right),
    svg("text", { class: "axis", x: MARGIN.left, y: LOSSES.split + 4 }, "difference"),
    path(points(apart, distance), { class: "line apart" }),
    dots(apart, distance, "apart"),
    xAxis(x, bottom, "optimizer step", (MARGIN.left + right) / 2),
  );
  const key = (kind, label) => el("span", { class: "key" },
    svg("svg", { class: "swatch", viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("path", { class: `line ${kind}`, d: "M0,4L28,4" })), label);
  const rows = curve.steps.map((step, i) => el("tr", {}, el("th", { scope: "row" }, String(step)),
    [got[i], want[i]].map((value) => el("td", { class: "number" }, exact(value))), el("td", { class: "number" }, figure(apart[i]))));
  return el(
    "figure", {},
    el("figcaption", {}, el("strong", {}, title), `: ${summary}`, broken.length ? el("span", { class: "fail" }, `; not finite at step ${broken.join(", ")}`) : null),
    el("p", { class: "legend" }, key("want", DATA.reference), key("got", DATA.candidate)),
    drawing,
    el("details", {}, el("summary", {}, "numbers"), el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["step", "got", "want", "difference"].map((name, i) => el("th", { scope: "col", class: i ? "number" : null }, name)))),
      el("tbody", {}, rows)))),
  );
}

if (DATA.losses.length > 0) {
  document.getElementById("losses-section").hidden = false;
  document.getElementById("losses-charts").append(...DATA.losses.map(lossChart));
}
