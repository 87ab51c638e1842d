// The record of the report: its statistics, names of positions, and rectangles of weights.

const record = JSON.parse(document.getElementById("record").textContent);

const STATISTICS = {
  entropy: ["Entropy", "Entropy of a query's weights in nats: 0 if all weight is on one key, log(keys) if the weights are equal."],
  effective_keys: ["Effective keys", "The number of keys that a query in effect attends to."],
  max: ["Largest logit", "The largest score of a query and a key, as it enters the softmax."],
  sink: ["Sink mass", "The weight on the first keys, a mean over the queries."],
  diagonal: ["Diagonal mass", "The weight on the key at the query's own position, a mean over the queries."],
  uniformity: ["Uniformity", "The entropy over that of equal weights: 1 if the weights are equal."],
};

function statisticLabel(name) {
  return (STATISTICS[name] || [name])[0];
}

/* A number of the record. JSON has no NaN and no infinities: they are the strings "nan", "inf" and "-inf". */
function number(value) {
  if (typeof value === "number") return value;
  return { inf: Infinity, "-inf": -Infinity }[value] ?? NaN;
}

/* The number of a statistic at a step, layer and head; NaN if the record lacks it. */
function statistic(name, step, layer, head) {
  return number(record.statistics[name]?.[step]?.[layer]?.[head]);
}

function format(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "infinite" : "−infinite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function bytes(base64) {
  const text = atob(base64);
  const result = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) result[i] = text.charCodeAt(i);
  return result;
}

/* A token with its whitespace made visible. */
function visible(token) {
  const text = token.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥");
  return text.trim() === "" ? text.replace(/ /g, "␣") || "∅" : text;
}

/* The tokens of a batch, or null if they are unknown. Without a batch: those of the only batch. */
function tokensOf(batch) {
  if (!record.tokens) return null;
  if (batch === null) return record.tokens.length === 1 ? record.tokens[0] : null;
  return record.tokens[batch] || null;
}

/* One axis of a rectangle of weights: `count` places of `size` positions each, from `first` on. */
class Axis {
  constructor({ kind, first, count, size, end, tokens }) {
    Object.assign(this, { kind, first, count, size, end, tokens });
  }
  begin(place) {
    return this.first + place * this.size;
  }
  last(place) {
    return Math.min(this.begin(place) + this.size, this.end) - 1;
  }
  token(position) {
    return this.tokens && position < this.tokens.length ? visible(this.tokens[position]) : String(position);
  }
  /* The text of a place, as short as a chip needs it. */
  label(place) {
    const begin = this.begin(place), last = this.last(place);
    return begin < last ? `${begin}–${last}` : this.token(begin);
  }
  /* The label, with the position behind a token. */
  name(place) {
    return this.size === 1 && this.tokens ? `${this.label(place)} (${this.begin(place)})` : this.label(place);
  }
  /* The place in words: "query 5 “it”". */
  describe(place) {
    const begin = this.begin(place), last = this.last(place);
    if (begin < last) {
      const plural = this.kind === "query" ? "queries" : "keys";
      return `${plural} ${begin}–${last}` + (this.tokens ? ` “${this.token(begin)} … ${this.token(last)}”` : "");
    }
    return `${this.kind} ${begin}` + (this.tokens ? ` “${this.token(begin)}”` : "");
  }
}

/* A rectangle of weights of one head: its pooled map, or the exact weights of a tile. */
class Weights {
  constructor(item, rows, columns, name) {
    Object.assign(this, { rows, columns, name });
    this.bytes = bytes(item.values);
    this.unit = (item.scale ?? 1) / 255;
    this.largest = this.bytes.reduce((a, b) => Math.max(a, b), 0) * this.unit;
    this.digits = Math.min(6, Math.max(2, Math.ceil(-Math.log10(this.unit || 1))));
    this.isExact = rows.size === 1 && columns.size === 1;
  }
  at(row, column) {
    return this.bytes[row * this.columns.count + column] * this.unit;
  }
  text(row, column) {
    return this.at(row, column).toFixed(this.digits);
  }
  /* The place of a position if it is within. */
  contains(query, key) {
    return query >= this.rows.first && query < this.rows.end && key >= this.columns.first && key < this.columns.end;
  }
}

function ofHead(items, layer, head) {
  return items.filter((item) => item.layer === layer && item.head === head);
}

function mapOf(layer, head) {
  const [item] = ofHead(record.maps, layer, head);
  if (!item) return null;
  const { queries, keys } = record.layers[layer];
  const tokens = tokensOf(null);
  const rows = new Axis({ kind: "query", first: 0, count: item.rows, size: item.row_size, end: queries, tokens });
  const columns = new Axis({ kind: "key", first: 0, count: item.columns, size: item.column_size, end: keys, tokens });
  const pooled = item.row_size > 1 || item.column_size > 1;
  const name = pooled ? `whole map, a cell is ${item.row_size} queries × ${item.column_size} keys` : "whole map";
  return new Weights(item, rows, columns, name);
}

function tilesOf(layer, head) {
  return ofHead(record.tiles, layer, head).map((item) => {
    const axis = (kind, first, count) =>
      new Axis({ kind, first, count, size: 1, end: first + count, tokens: tokensOf(item.batch) });
    const rows = axis("query", item.first_query, item.rows), columns = axis("key", item.first_key, item.columns);
    const range = (a) => `${a.first}–${a.end - 1}`;
    return new Weights(item, rows, columns, `exact: batch ${item.batch}, queries ${range(rows)}, keys ${range(columns)}`);
  });
}
