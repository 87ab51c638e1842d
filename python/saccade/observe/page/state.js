// What is chosen in the report, and what it has of the page.

const byId = (id) => document.getElementById(id);

const state = {
  layer: 0,
  head: 0,
  step: Math.max(0, record.steps.length - 1), // an index of record.steps
  statistic: Object.keys(record.statistics)[0] || "entropy",
};

const views = []; // functions that show the state

/* Chooses a layer, head, step or statistic. Heads and layers beyond the last one become the last one. */
function choose(change) {
  Object.assign(state, change);
  state.layer = Math.min(Math.max(state.layer, 0), Math.max(0, record.layers.length - 1));
  state.head = Math.min(Math.max(state.head, 0), Math.max(0, headsOf(state.layer) - 1));
  for (const view of views) view();
}

function headsOf(layer) {
  return record.layers[layer]?.heads ?? 0;
}

/* The change of layer and head that an arrow key means, or null. */
function arrow(event) {
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
  return down || right ? { down, right } : null;
}

function element(tag, attributes = {}, ...children) {
  const result = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) result.setAttribute(name, value);
  result.append(...children);
  return result;
}

const SVG = byId("shapes").namespaceURI;

function shape(tag, attributes = {}, text = "") {
  const result = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) result.setAttribute(name, value);
  result.textContent = text;
  return result;
}

/* Shows a sentence, of which the parts in backquotes are code. */
function showSentence(host, text) {
  host.replaceChildren(...text.split("`").map((piece, i) => (i % 2 ? element("code", {}, piece) : piece)));
}

/* Shows the part of the page that contains `child`, or a sentence that says why it is empty. */
function showPart(child, why) {
  const part = child.closest(".part"), sentence = part.querySelector(".empty");
  sentence.hidden = !why;
  part.querySelector(".body").hidden = Boolean(why);
  showSentence(sentence, why || "");
}
