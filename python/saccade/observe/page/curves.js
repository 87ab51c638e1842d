// The charts of the report: a statistic over layers and over steps, and the weight that each key receives.

function showCurves() {
  showLayers();
  showSteps();
  showReceived();
}

/* The last series is that of the chosen head, so that it is on top. */
function ordered(series, isChosen) {
  return [...series.filter((one) => !isChosen(one)), ...series.filter(isChosen).map((one) => ({ ...one, kind: "strong" }))];
}

function mean(values) {
  const finite = values.filter(Number.isFinite);
  return finite.reduce((a, b) => a + b, 0) / finite.length;
}

function showLayers() {
  const { statistic: name, step } = state, title = statisticLabel(name);
  byId("layers-title").textContent = `${title} over layers`;
  const host = byId("layers"), layers = record.layers.map((_, i) => i), most = Math.max(0, ...layers.map(headsOf));
  showPart(host, layers.length > 1 ? "" : "The record has one layer only; observe a model with more layers to see this curve.");
  if (layers.length < 2) return;
  const heads = Array.from({ length: most }, (_, head) =>
    ({ name: `head ${head}`, head, kind: "", values: layers.map((layer) => statistic(name, step, layer, head)) }));
  const all = layers.map((_, i) => mean(heads.map((one) => one.values[i])));
  drawChart(host, {
    series: ordered([...heads, { name: "mean of the heads", kind: "mean", values: all }], (one) => one.head === state.head),
    x: layers, xLabel: (i) => `${i}`, xTitle: "layer", yTitle: title.toLowerCase(),
    label: `${title} over layers, a line for each head`,
    pick: (layer, one) => choose({ layer, head: one.head ?? state.head }),
  });
}

function showSteps() {
  const { statistic: name, layer } = state, title = statisticLabel(name), host = byId("steps");
  byId("steps-title").textContent = `${title} over training steps, layer ${layer}`;
  showPart(host, record.steps.length > 1 ? "" : `Only one step is recorded. ${HOW.steps}`);
  if (record.steps.length < 2) return;
  const heads = Array.from({ length: headsOf(layer) }, (_, head) =>
    ({ name: `head ${head}`, head, kind: "", values: record.steps.map((_, step) => statistic(name, step, layer, head)) }));
  const marks = record.events.filter((event) => event.layer === layer && (event.head === null || event.head === state.head))
    .map((event) => ({ x: event.step, label: `${event.kind}: ${event.message}` }));
  drawChart(host, {
    series: ordered(heads, (one) => one.head === state.head), x: record.steps, xLabel: (i) => `${record.steps[i]}`,
    xTitle: "step", yTitle: title.toLowerCase(), marks: marks.filter(({ x }) => x >= record.steps[0] && x <= record.steps.at(-1)),
    label: `${title} over steps, a line for each head of layer ${layer}`,
    pick: (step, one) => choose({ step, head: one.head }),
  });
}

function showReceived() {
  const { layer, head } = state, [item] = ofHead(record.received, layer, head), host = byId("received");
  showPart(host, item ? "" : `The weight that keys receive is not recorded for this head. ${HOW.maps}`);
  if (!item) return;
  const values = [...bytes(item.values)].map((byte) => (byte / 255) * item.scale);
  const keys = new Axis({ kind: "key", first: 0, count: values.length, size: 1, end: values.length, tokens: tokensOf(null) });
  drawChart(host, {
    series: [{ name: "receives", kind: "strong", values }], x: values.map((_, i) => i),
    xLabel: (i) => (keys.tokens ? `${i} ${keys.token(i)}` : `${i}`), xTitle: "key", yTitle: "weight received",
    label: `Weight that each key receives in layer ${layer}, head ${head}`,
  });
}
