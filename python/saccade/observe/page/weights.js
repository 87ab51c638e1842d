// The weights of the chosen head: the picture, the choice between the whole map and tiles, and what it points at.

let shown = null; // the Weights in the picture
let choices = []; // all Weights of the chosen head
const decoded = new Map(); // all Weights of each head that was needed
let picture = null;
const pointed = { row: null, column: null, isShown: false };
let kept = { row: null, column: null }; // what is pointed at when the pointer leaves

function buildWeights() {
  picture = new CellCanvas(byId("map"), { move: point, pick, leave: pointAtKept });
  byId("shown").addEventListener("change", () => showChoice(Number(byId("shown").value)));
  buildLinks();
}

/* The map and the tiles of a head; a map of exact weights is left out if there are tiles. */
function choicesOf(layer, head) {
  const name = `${layer}.${head}`;
  if (!decoded.has(name)) {
    const map = mapOf(layer, head), tiles = tilesOf(layer, head);
    decoded.set(name, map && !(map.isExact && tiles.length) ? [map, ...tiles] : tiles);
  }
  return decoded.get(name);
}

function showWeights() {
  const { layer, head } = state;
  choices = choicesOf(layer, head);
  byId("weights-title").textContent = `Weights of layer ${layer}, head ${head}, at step ${record.steps.at(-1)}`;
  byId("shown").replaceChildren(...choices.map((weights, i) => element("option", { value: i }, weights.name)));
  showPart(byId("map"), choices.length ? "" : `No weights of this head are recorded. ${HOW.maps}`);
  const { queries, keys } = record.layers[layer];
  const whole = choices.findIndex((weights) => weights.isExact && weights.rows.count === queries && weights.columns.count === keys);
  if (choices.length) showChoice(Math.max(0, whole));
}

function showChoice(index) {
  const before = shown;
  shown = choices[index];
  byId("shown").value = String(index);
  const { rows, columns, isExact } = shown, tiles = choices.filter((weights) => weights.isExact && weights !== shown);
  const note = isExact ? "" : tiles.length
    ? "Dashed boxes have exact weights: click one, or press Enter." : `Exact weights of this head are not recorded. ${HOW.tiles}`;
  const unlabelled = rows.tokens ? "" : record.tokens ? "A mean over batches has no tokens." : HOW.tokens;
  showSentence(byId("shown-note"), `${note} ${unlabelled}`);
  const short = (axis) => (place) => (axis.size > 1 ? String(axis.begin(place)) : axis.token(axis.begin(place)));
  picture.show({
    rows: rows.count, columns: columns.count, rowLabel: short(rows), columnLabel: short(columns),
    hasTokens: columns.size === 1 && Boolean(columns.tokens), largestCell: 44,
    color: (row, column) => ramp(weightShare(shown.at(row, column), shown.largest)),
    label: `Weights, ${shown.name}: queries down, keys to the right`,
    boxes: isExact ? [] : tiles.map(boxOf),
  });
  byId("map-high").textContent = `${shown.largest.toFixed(shown.digits)}  weight (square-root scale)`;
  drawRamp(byId("map-ramp"), Math.sqrt);
  showLinks(shown);
  const isSame = before && before.rows.count === rows.count && before.columns.count === columns.count;
  if (!isSame) kept = { row: null, column: null };
  pointed.isShown = false;
  pointAtKept();
}

/* The cells of the whole map that a tile covers. */
function boxOf(tile) {
  const cover = (axis, of) => [Math.floor(of.first / axis.size), Math.ceil(of.end / axis.size)];
  const [row, lastRow] = cover(shown.rows, tile.rows), [column, lastColumn] = cover(shown.columns, tile.columns);
  return { row, column, rows: lastRow - row, columns: lastColumn - column };
}

/* Keeps an exact weight, or shows the exact weights of the tile at a block. */
function pick(row, column) {
  if (shown.isExact) keep(row, column);
  else zoom(row, column);
}

/* Points at a pair also when the pointer leaves; a second time ends that. */
function keep(row, column) {
  kept = kept.row === row && kept.column === column ? { row: null, column: null } : { row, column };
  pointAtKept();
}

/* Keeps a query or a key, beside a key or query that is kept; a second time ends that. */
function keepOne(row, column) {
  const next = (place, before) => (place === null ? before : place === before ? null : place);
  kept = { row: next(row, kept.row), column: next(column, kept.column) };
  pointAtKept();
}

function pointAtKept() {
  point(kept.row, kept.column);
}

function zoom(row, column) {
  const inside = (box) => row >= box.row && row < box.row + box.rows && column >= box.column && column < box.column + box.columns;
  const found = choices.findIndex((weights) => weights.isExact && inside(boxOf(weights)));
  if (found >= 0) showChoice(found);
  else {
    const zoom = `${shown.rows.begin(row)},${shown.columns.begin(column)}`;
    showSentence(byId("weight-readout"), `The exact weights of this place are not recorded: \`python -m saccade.observe\` records them with \`--zoom ${zoom}\`.`);
  }
}

/* Points at a query (row), at a key (column), or with both at their weight. */
function point(row, column) {
  // What is there stays: a click on it begins with a blur, which points at what is kept.
  if (pointed.isShown && pointed.row === row && pointed.column === column) return;
  Object.assign(pointed, { row, column, isShown: true });
  picture.mark(row, column);
  markLinks(row, column);
  byId("weight-readout").textContent = readout(row, column);
  showStrongest(row, column);
}

function readout(row, column) {
  const { rows, columns } = shown;
  if (row !== null && column !== null) return `${rows.describe(row)} → ${columns.describe(column)}: ${shown.text(row, column)}`;
  if (row !== null) return `${rows.describe(row)}: weights on the keys`;
  if (column !== null) return `${columns.describe(column)}: weights from the queries`;
  return "";
}

/* Lists the strongest keys of a query, the strongest queries of a key, or the heads in which a pair is strongest; without
   any, the strongest pairs. */
function showStrongest(row, column) {
  const isPair = row !== null && column !== null;
  const items = isPair ? headsOfPair(row, column) : pairsOf(row, column);
  const title = isPair ? "Heads, by this weight" : row !== null ? "Strongest keys" : column !== null ? "Strongest queries" : "Strongest pairs";
  byId("strongest-title").textContent = title;
  byId("strongest").replaceChildren(...items.filter((item) => item.weight > 0).slice(0, 10).map(({ weight, text, label, act }) => {
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.min(100, (100 * weight) / shown.largest)}%`;
    const name = element(act ? "button" : "span", { class: "label", title: label }, label);
    if (act) name.addEventListener("click", act);
    return element("li", {}, name, element("span", { class: "value" }, text), bar);
  }));
}

function sorted(items) {
  return items.sort((a, b) => b.weight - a.weight);
}

function pairsOf(row, column) {
  const { rows, columns } = shown, items = [];
  for (let r = row ?? 0; r < (row ?? rows.count - 1) + 1; ++r) {
    for (let c = column ?? 0; c < (column ?? columns.count - 1) + 1; ++c) {
      const label = row !== null ? columns.name(c) : column !== null ? rows.name(r) : `${rows.name(r)} → ${columns.name(c)}`;
      items.push({ weight: shown.at(r, c), text: shown.text(r, c), label });
    }
  }
  return sorted(items);
}

/* The weights of a pair in all heads that have a rectangle of the same place. */
function headsOfPair(row, column) {
  const items = [];
  record.layers.forEach((_, layer) => {
    for (let head = 0; head < headsOf(layer); ++head) {
      const same = choicesOf(layer, head).find((weights) => weights.name === shown.name);
      if (!same) continue;
      const act = () => choose({ layer, head });
      items.push({ weight: same.at(row, column), text: same.text(row, column), label: `layer ${layer}, head ${head}`, act });
    }
  });
  return sorted(items);
}
