// The grid of all heads, the selects above the page, and the numbers of the chosen head.

const cells = []; // of each layer, of each head

function buildOverview() {
  const grid = byId("overview"), most = Math.max(0, ...record.layers.map((layer) => layer.heads));
  grid.style.gridTemplateColumns = `max-content repeat(${most}, minmax(14px, 36px))`;
  const heads = element("div", { role: "row" }, element("span", { class: "name", role: "columnheader" }, "layer\\head"));
  for (let head = 0; head < most; ++head) heads.append(element("span", { class: "name", role: "columnheader" }, String(head)));
  grid.append(heads);
  const marked = new Set(record.events.map((event) => `${event.layer}.${event.head}`));
  record.layers.forEach((layer, l) => {
    const row = element("div", { role: "row" }, element("span", { class: "name", role: "rowheader", title: layer.name }, String(l)));
    cells.push([]);
    for (let head = 0; head < most; ++head) {
      if (head >= layer.heads) {
        row.append(element("span", { role: "gridcell" }));
        continue;
      }
      const cell = element("div", { class: "cell", role: "gridcell", tabindex: "-1" });
      cell.classList.toggle("marked", marked.has(`${l}.${head}`));
      cell.addEventListener("click", () => choose({ layer: l, head }));
      cells[l].push(cell);
      row.append(cell);
    }
    grid.append(row);
  });
  grid.addEventListener("keydown", (event) => {
    const move = arrow(event);
    if (!move || event.shiftKey) return;
    event.preventDefault();
    choose({ layer: state.layer + move.down, head: state.head + move.right });
    cells[state.layer][state.head].focus();
  });
}

function showOverview() {
  const { statistic: name, step } = state;
  const values = record.layers.map((layer, l) => Array.from({ length: layer.heads }, (_, h) => statistic(name, step, l, h)));
  const finite = values.flat().filter(Number.isFinite);
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity), high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  cells.forEach((row, layer) => row.forEach((cell, head) => {
    const value = values[layer][head], chosen = layer === state.layer && head === state.head;
    const text = `layer ${layer}, head ${head}: ${statisticLabel(name).toLowerCase()} ${format(value)}`;
    cell.classList.toggle("broken", !Number.isFinite(value));
    cell.style.background = Number.isFinite(value) ? css(ramp(high > low ? (value - low) / (high - low) : 0.5)) : "";
    cell.title = text;
    cell.setAttribute("aria-label", text + (cell.classList.contains("marked") ? ", has an event" : ""));
    cell.setAttribute("aria-selected", String(chosen));
    cell.tabIndex = chosen ? 0 : -1;
  }));
  byId("overview-low").textContent = finite.length ? format(low) : "";
  byId("overview-high").textContent = finite.length ? `${format(high)}  ${statisticLabel(name).toLowerCase()}` : "";
  drawRamp(byId("overview-ramp"), (x) => x);
  showNumbers();
}

function showNumbers() {
  const { layer, head, step } = state, place = record.layers[layer];
  byId("chosen").textContent = `Layer ${layer}, head ${head}`;
  const rows = Object.keys(record.statistics).map((name) => {
    const row = element("tr", {}, element("th", { scope: "row" }, statisticLabel(name)),
      element("td", { class: "number" }, format(statistic(name, step, layer, head))));
    row.classList.toggle("chosen", name === state.statistic);
    return row;
  });
  const fact = (name, value) => element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "number" }, value));
  rows.push(fact("Queries × keys", `${place.queries} × ${place.keys}`), fact("Mask", place.causal ? "causal" : "not causal"));
  byId("numbers").tBodies[0].replaceChildren(...rows);
  byId("meaning").textContent = `${place.name}. ${(STATISTICS[state.statistic] || ["", ""])[1]}`;
}

function fill(select, texts, change) {
  select.replaceChildren(...texts.map(([value, text]) => element("option", { value }, text)));
  select.addEventListener("change", () => choose(change(select.value)));
}

function buildBar() {
  fill(byId("layer"), record.layers.map((layer, l) => [l, `${l}: ${layer.name}`]), (value) => ({ layer: Number(value) }));
  fill(byId("head"), [], (value) => ({ head: Number(value) }));
  fill(byId("statistic"), Object.keys(record.statistics).map((name) => [name, statisticLabel(name)]), (value) => ({ statistic: value }));
  fill(byId("step"), record.steps.map((step, i) => [i, String(step)]), (value) => ({ step: Number(value) }));
  document.addEventListener("keydown", (event) => {
    const move = arrow(event);
    if (!move || !event.shiftKey || event.target.matches("select")) return;
    event.preventDefault();
    choose({ layer: state.layer + move.down, head: state.head + move.right });
  });
}

function showBar() {
  const heads = byId("head");
  if (heads.options.length !== headsOf(state.layer)) {
    heads.replaceChildren(...Array.from({ length: headsOf(state.layer) }, (_, h) => element("option", { value: h }, String(h))));
  }
  for (const name of ["layer", "head", "statistic", "step"]) byId(name).value = String(state[name]);
}
