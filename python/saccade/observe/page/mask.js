// The picture of the mask: which tiles are empty, partial and full.

const TILES = [
  { name: "empty", color: "--empty", meaning: "no query attends to a key" },
  { name: "partial", color: "--partial", meaning: "some pairs are visible" },
  { name: "full", color: "--full", meaning: "all pairs are visible" },
];
let maskPicture = null;
let maskTiles = null; // of the chosen layer, with their bytes

function buildMask() {
  const point = (row, column) => {
    maskPicture.mark(row, column);
    byId("mask-readout").textContent = row === null ? "" : describeTile(row, column);
  };
  maskPicture = new CellCanvas(byId("mask"), { move: point, pick: point, leave: () => point(null, null) });
}

function describeTile(row, column) {
  const { size } = maskTiles, { queries, keys } = record.layers[state.layer];
  const range = (place, count) => `${place * size}–${Math.min(place * size + size, count) - 1}`;
  const { name, meaning } = TILES[maskTiles.bytes[row * maskTiles.columns + column]];
  return `queries ${range(row, queries)} × keys ${range(column, keys)}: ${name}, ${meaning}`;
}

function showMask() {
  const item = (record.mask_tiles || []).find((tiles) => tiles.layer === state.layer), canvas = byId("mask");
  byId("mask-title").textContent = `Mask of layer ${state.layer}`;
  showPart(canvas, item ? "" : `No mask of this layer is recorded. ${HOW.mask}`);
  if (!item) return;
  maskTiles = { ...item, bytes: bytes(item.values) };
  const colors = TILES.map(({ color }) => styleColor(color));
  maskPicture.show({
    rows: item.rows, columns: item.columns, rowLabel: (row) => String(row * item.size), columnLabel: (column) => String(column * item.size),
    largestCell: 24, color: (row, column) => colors[maskTiles.bytes[row * item.columns + column]],
    label: `Mask of layer ${state.layer} in tiles of ${item.size} × ${item.size}: queries down, keys to the right`,
  });
  const all = maskTiles.bytes.length;
  byId("mask-legend").replaceChildren(...TILES.map(({ name, color, meaning }, kind) => {
    const count = maskTiles.bytes.filter((byte) => byte === kind).length, swatch = element("i");
    swatch.style.background = `var(${color})`;
    return element("li", {}, swatch, `${name}: ${count} of ${all} tiles (${Math.round((100 * count) / all)} %), ${meaning}`);
  }));
}
