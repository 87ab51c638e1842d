// Line charts: several series over one axis, with a cursor that the pointer and the arrow keys move.

const CHART = { width: 640, height: 230, left: 52, right: 16, top: 22, bottom: 34 };

/* Draws a chart into `host`. `series`: { name, values, kind } with kind "", "mean" or "strong"; the last one is on top.
   `x`: the numbers of the axis; `xLabel(i)`: the text of one. `marks`: { x, label }. `pick(i, series)` follows a click or
   Enter. */
function drawChart(host, { series, x, xLabel, xTitle, yTitle, label, marks = [], pick = () => {} }) {
  const width = Math.max(280, host.clientWidth || CHART.width), { height, left, right, top, bottom } = CHART;
  const svg = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application", "aria-label": label });
  const finite = series.flatMap((one) => one.values).filter(Number.isFinite);
  let low = finite.reduce((a, b) => Math.min(a, b), Infinity), high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!finite.length) [low, high] = [0, 1];
  if (low > 0 && low < 0.4 * high) low = 0;
  if (high === low) [low, high] = [low - 0.5 * Math.abs(low || 1), high + 0.5 * Math.abs(high || 1)];
  const first = x[0], span = x.at(-1) - first || 1;
  const px = (value) => left + ((value - first) / span) * (width - left - right);
  const py = (value) => top + (1 - (value - low) / (high - low)) * (height - top - bottom);
  drawAxes(svg, { width, low, high, px, py, x, xLabel, xTitle, yTitle });
  for (const mark of marks) {
    const line = shape("line", { class: "mark", x1: px(mark.x), x2: px(mark.x), y1: top, y2: height - bottom });
    line.append(shape("title", {}, mark.label));
    svg.append(line);
  }
  for (const one of series) {
    const line = shape("path", { class: `series ${one.kind}`, d: path(one.values, x, px, py) });
    svg.append(line);
  }
  if (x.length === 1) {
    for (const one of series) if (Number.isFinite(one.values[0])) svg.append(shape("circle", { class: "point", cx: px(first), cy: py(one.values[0]), r: 3 }));
  }
  const readout = element("output", { "aria-live": "polite" });
  host.replaceChildren(svg, readout);
  addCursor(svg, readout, { series, x, xLabel, px, py, width, pick });
}

/* The path of the finite values; others are gaps. */
function path(values, x, px, py) {
  let text = "", isOpen = false;
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return void (isOpen = false);
    text += `${isOpen ? "L" : "M"}${px(x[i]).toFixed(1)} ${py(value).toFixed(1)}`;
    isOpen = true;
  });
  return text;
}

function drawAxes(svg, { width, low, high, px, py, x, xLabel, xTitle, yTitle }) {
  const { height, left, right, top, bottom } = CHART, base = height - bottom;
  svg.append(shape("text", { x: left, y: top - 10 }, yTitle), shape("text", { x: width - right, y: height - 4, "text-anchor": "end" }, xTitle));
  for (let tick = 0; tick <= 4; ++tick) {
    const value = low + ((high - low) * tick) / 4, y = py(value);
    svg.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: y, y2: y }),
      shape("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, format(Number(value.toPrecision(3)))));
  }
  const most = Math.max(2, Math.floor((width - left - right) / 70)), every = Math.ceil(x.length / most);
  for (let i = 0; i < x.length; i += every) {
    svg.append(shape("text", { x: px(x[i]), y: base + 16, "text-anchor": i && i === x.length - 1 ? "end" : "middle" }, xLabel(i)));
  }
}

function addCursor(svg, readout, { series, x, xLabel, px, py, width, pick }) {
  const { height, top, bottom } = CHART;
  const line = shape("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const dot = shape("circle", { class: "point", r: 4, visibility: "hidden" });
  svg.append(line, dot);
  let at = null;
  const move = (i, one) => {
    at = { i, one };
    const value = one.values[i];
    line.setAttribute("x1", px(x[i]));
    line.setAttribute("x2", px(x[i]));
    line.setAttribute("visibility", "visible");
    dot.setAttribute("visibility", Number.isFinite(value) ? "visible" : "hidden");
    if (Number.isFinite(value)) dot.setAttribute("cx", px(x[i])), dot.setAttribute("cy", py(value));
    readout.textContent = `${xLabel(i)}, ${one.name}: ${format(value)}`;
  };
  const leave = () => {
    at = null;
    for (const mark of [line, dot]) mark.setAttribute("visibility", "hidden");
    readout.textContent = "";
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = width / box.width;
    const mouseX = (event.clientX - box.left) * scale, mouseY = (event.clientY - box.top) * scale;
    let i = 0;
    for (let j = 1; j < x.length; ++j) if (Math.abs(px(x[j]) - mouseX) < Math.abs(px(x[i]) - mouseX)) i = j;
    const distance = (one) => (Number.isFinite(one.values[i]) ? Math.abs(py(one.values[i]) - mouseY) : Infinity);
    move(i, series.reduce((a, b) => (distance(b) <= distance(a) ? b : a)));
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("click", () => at && pick(at.i, at.one));
  svg.addEventListener("keydown", (event) => {
    const change = arrow(event);
    if (event.key === "Enter" && at) return pick(at.i, at.one);
    if (!change || event.shiftKey) return;
    event.preventDefault();
    const limit = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const one = at ? series.indexOf(at.one) : series.length - 1;
    move(limit(at ? at.i + change.right : 0, x.length), series[limit(one - change.down, series.length)]);
  });
}
