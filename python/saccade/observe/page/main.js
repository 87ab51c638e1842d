// Puts the report together.

/* How to record what a part lacks. */
const HOW = {
  maps: "Call the model within `with saccade.observe(model) as record:`, without `maps=False`; weights are those of the last observed step.",
  tiles: "`saccade.observe(model, tile=128)` keeps those of calls with at most 128 queries and keys, `zoom=[(query, key)]` those around a place of longer ones.",
  steps: "Run the training within `with saccade.observe(model, every=100) as record:`, which observes every 100th step.",
  mask: "Call the model within `with saccade.observe(model) as record:`; masks are those of the last observed step.",
  tokens: "`saccade.observe(model, tokens=[[...]])` labels the positions.",
};

function plural(count, one) {
  return `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
}

function showSummary() {
  const sizes = record.layers.map(({ heads, queries, keys }) => `${heads} heads, ${queries} queries × ${keys} keys`);
  const shape = new Set(sizes).size === 1 ? `, each with ${sizes[0]}` : "";
  byId("summary").textContent =
    `${plural(record.layers.length, "layer")}${shape}. ${plural(record.steps.length, "observed step")}, ${plural(record.events.length, "event")}.`;
  const missed = Object.entries(record.missed).map(([name, reason]) => `Not observed: ${name}: ${reason}`);
  byId("notes").replaceChildren(...[...record.left_out, ...missed].map((note) => element("li", {}, note)));
}

function main() {
  showSummary();
  const why = !record.layers.length ? "No attention was observed. Call the model within `with saccade.observe(model) as record:`, then write the report." : "";
  if (why || !record.steps.length) {
    for (const body of document.querySelectorAll(".body")) showPart(body, why || `No step was observed. ${HOW.steps}`);
    return;
  }
  buildBar();
  buildOverview();
  buildWeights();
  buildMask();
  buildEvents();
  views.push(showBar, showOverview, showWeights, showCurves, showMask);
  choose({});
  cells[state.layer][state.head].focus({ preventScroll: true });
  darkScheme.addEventListener("change", () => choose({}));
}

main();
