// The queries and keys as texts, linked in both directions: a query shades its keys, a key shades its queries.

const MOST_LINES = 40; // places of an axis up to which they stand in columns, joined by lines

function buildLinks() {
  new ResizeObserver(() => shown && drawLines(pointed.row, pointed.column)).observe(byId("links"));
  for (const [id, isQuery] of [["queries", true], ["keys", false]]) {
    const list = byId(id);
    const follow = (type, act) => list.addEventListener(type, (event) => {
      const chip = event.target.closest(".token"), place = Number(chip?.dataset.place);
      if (chip) act(isQuery ? place : null, isQuery ? null : place);
    });
    follow("pointerover", point);
    follow("focusin", point);
    follow("click", keepOne);
    list.addEventListener("pointerleave", pointAtKept);
    list.addEventListener("focusout", pointAtKept);
    list.addEventListener("keydown", (event) => {
      const move = arrow(event);
      if (event.key === "Enter" && event.target.matches(".token")) event.target.click();
      if (!move || event.shiftKey) return;
      event.preventDefault();
      const chips = list.children, place = Number(event.target.dataset.place);
      const next = chips[Math.min(Math.max(place + move.down + move.right, 0), chips.length - 1)];
      chips[place].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
}

function showLinks({ rows, columns }) {
  for (const [id, axis] of [["queries", rows], ["keys", columns]]) {
    byId(id).replaceChildren(...Array.from({ length: axis.count }, (_, place) => {
      const chip = element("span", { class: "token", role: "option", tabindex: place ? "-1" : "0" }, axis.label(place));
      chip.dataset.place = place;
      chip.title = axis.describe(place);
      return chip;
    }));
  }
  byId("links").classList.toggle("columns", Math.max(rows.count, columns.count) <= MOST_LINES);
}

/* Shades the chips by their weights with what is pointed at. */
function markLinks(row, column) {
  const { rows, columns } = shown;
  const shade = (chip, isChosen, weight) => {
    chip.setAttribute("aria-selected", String(isChosen));
    const share = weight === null ? null : weightShare(weight, shown.largest);
    chip.style.background = share === null ? "" : css(ramp(share));
    chip.style.color = share === null ? "" : ink(share);
    const place = Number(chip.dataset.place), axis = chip.parentElement.id === "queries" ? rows : columns;
    chip.title = axis.describe(place) + (weight === null ? "" : `: ${weight.toFixed(shown.digits)}`);
  };
  [...byId("queries").children].forEach((chip, r) =>
    shade(chip, r === row, row === null && column !== null ? shown.at(r, column) : null));
  [...byId("keys").children].forEach((chip, c) => shade(chip, c === column, row !== null ? shown.at(row, c) : null));
  drawLines(row, column);
}

/* Lines between the columns: of what is pointed at, otherwise of all pairs. */
function drawLines(row, column) {
  const svg = byId("lines");
  svg.replaceChildren();
  if (!byId("links").classList.contains("columns")) return;
  const box = svg.getBoundingClientRect(), { rows, columns } = shown;
  const heights = (id) => [...byId(id).children].map((chip) => {
    const { top, height } = chip.getBoundingClientRect();
    return top + height / 2 - box.top;
  });
  const left = heights("queries"), right = heights("keys"), color = css(styleColor("--accent"));
  svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  for (let r = 0; r < rows.count; ++r) {
    for (let c = 0; c < columns.count; ++c) {
      const weight = shown.at(r, c), isOn = (row === null || r === row) && (row !== null || column === null || c === column);
      if (!isOn || weight < 0.02 * shown.largest) continue;
      svg.append(shape("line", { x1: 4, y1: left[r], x2: box.width - 4, y2: right[c], stroke: color, "stroke-width": 2,
        "stroke-opacity": (weight / shown.largest) * (row === null && column === null ? 0.6 : 1) }));
    }
  }
}
