// A canvas of cells with labels, a cursor that the pointer and the arrow keys move, and outlines.

const FONT = "11px system-ui, sans-serif";

class CellCanvas {
  /* `move(row, column)` and `leave()` report the cursor, `pick(row, column)` a click or Enter. */
  constructor(canvas, { move, pick, leave }) {
    Object.assign(this, { canvas, move, pick, leave, grid: null, row: null, column: null });
    canvas.addEventListener("pointermove", (event) => this.atPointer(event, move, leave));
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("click", (event) => this.atPointer(event, pick, () => {}));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", leave);
    new ResizeObserver(() => this.grid && this.draw()).observe(canvas.parentElement);
  }

  /* Shows rows × columns cells. `color(row, column)` is [r, g, b]; `rowLabel` and `columnLabel` are the texts beside them,
     which `hasTokens` permits to tilt; `largestCell` is in pixels; `boxes` are outlined rectangles { row, column, rows, columns }. */
  show(grid) {
    this.grid = grid;
    this.row = this.column = null;
    const image = new ImageData(grid.columns, grid.rows);
    for (let row = 0, at = 0; row < grid.rows; ++row) {
      for (let column = 0; column < grid.columns; ++column, at += 4) image.data.set([...grid.color(row, column), 255], at);
    }
    this.image = document.createElement("canvas");
    this.image.width = grid.columns;
    this.image.height = grid.rows;
    this.image.getContext("2d").putImageData(image, 0, 0);
    this.canvas.setAttribute("aria-label", grid.label);
    this.draw();
  }

  /* Outlines a row, a column or, with both, a cell as well. */
  mark(row, column) {
    Object.assign(this, { row, column });
    this.draw();
  }

  draw() {
    const { canvas, grid } = this, context = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    const width = Math.min(canvas.parentElement.clientWidth, 560);
    if (width <= 0) return;
    context.font = FONT;
    const longest = (count, label) =>
      Math.min(90, Array.from({ length: count }, (_, i) => context.measureText(label(i)).width).reduce((a, b) => Math.max(a, b), 0));
    this.left = longest(grid.rows, grid.rowLabel) + 8;
    this.size = Math.max(1, Math.min((width - this.left - 1) / grid.columns, grid.largestCell));
    this.sizeY = Math.min(Math.max(this.size, Math.min(12, 120 / grid.rows)), Math.max(1, 900 / grid.rows));
    const labelWidth = longest(grid.columns, grid.columnLabel), tilted = grid.hasTokens && labelWidth > this.size - 4;
    this.top = (tilted ? labelWidth : 12) + 8;
    const w = this.left + this.size * grid.columns + 1, h = this.top + this.sizeY * grid.rows + 1;
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
    canvas.style.width = `${w}px`;
    canvas.style.height = `${h}px`;
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, this.left, this.top, this.size * grid.columns, this.sizeY * grid.rows);
    this.lines(context);
    this.labels(context, tilted, (tilted ? 13 : labelWidth + 8) / this.size);
    context.strokeStyle = css(styleColor("--strong"));
    for (const box of grid.boxes || []) this.outline(context, box, 1.5, [4, 3]);
    if (this.row !== null) this.outline(context, { row: this.row, column: 0, rows: 1, columns: grid.columns }, 1);
    if (this.column !== null) this.outline(context, { row: 0, column: this.column, rows: grid.rows, columns: 1 }, 1);
    if (this.row !== null && this.column !== null) this.outline(context, { row: this.row, column: this.column, rows: 1, columns: 1 }, 2.5);
  }

  /* Lines between large cells, and the frame. */
  lines(context) {
    const { grid, left, top, size, sizeY } = this;
    context.strokeStyle = css(styleColor("--card"));
    context.beginPath();
    if (Math.min(size, sizeY) >= 10) {
      for (let row = 1; row < grid.rows; ++row) context.rect(left, top + row * sizeY, size * grid.columns, 0);
      for (let column = 1; column < grid.columns; ++column) context.rect(left + column * size, top, 0, sizeY * grid.rows);
    }
    context.stroke();
    context.strokeStyle = css(styleColor("--line"));
    context.strokeRect(left, top, size * grid.columns, sizeY * grid.rows);
  }

  /* Writes every label of rows that has space, and one of `spacing` columns. */
  labels(context, tilted, spacing) {
    const { grid, left, top, size, sizeY } = this;
    context.font = FONT;
    context.textBaseline = "middle";
    const everyRow = Math.ceil(13 / sizeY), everyColumn = Math.ceil(spacing);
    for (let row = 0; row < grid.rows; row += everyRow) {
      this.text(context, grid.rowLabel(row), left - 5, top + (row + 0.5) * sizeY, "right", row === this.row);
    }
    for (let column = 0; column < grid.columns; column += everyColumn) {
      context.save();
      context.translate(left + (column + 0.5) * size, top - 5);
      if (tilted) context.rotate(-Math.PI / 2);
      else context.translate(0, -5);
      this.text(context, grid.columnLabel(column), 0, 0, tilted ? "left" : "center", column === this.column);
      context.restore();
    }
  }

  text(context, text, x, y, align, strong) {
    let shown = text;
    while (shown.length > 1 && context.measureText(shown).width > 90) shown = `${shown.replace(/…$/, "").slice(0, -1)}…`;
    context.textAlign = align;
    context.fillStyle = css(styleColor(strong ? "--strong" : "--soft"));
    context.fillText(shown, x, y);
  }

  outline(context, { row, column, rows, columns }, width, dash = []) {
    context.setLineDash(dash);
    context.lineWidth = width;
    context.strokeStyle = css(styleColor("--strong"));
    context.strokeRect(this.left + column * this.size, this.top + row * this.sizeY, columns * this.size, rows * this.sizeY);
  }

  atPointer(event, found, outside) {
    const box = this.canvas.getBoundingClientRect(), { grid, size, sizeY } = this;
    const column = Math.floor((event.clientX - box.left - this.left) / size);
    const row = Math.floor((event.clientY - box.top - this.top) / sizeY);
    if (row >= 0 && row < grid.rows && column >= 0 && column < grid.columns) found(row, column);
    else outside();
  }

  key(event) {
    const move = arrow(event), row = this.row ?? 0, column = this.column ?? 0;
    if (move && !event.shiftKey) {
      const isNew = this.row === null || this.column === null;
      const limit = (value, count) => Math.min(Math.max(value, 0), count - 1);
      this.move(limit(row + (isNew ? 0 : move.down), this.grid.rows), limit(column + (isNew ? 0 : move.right), this.grid.columns));
      event.preventDefault();
    } else if (event.key === "Enter") {
      this.pick(row, column);
    } else if (event.key === "Escape") {
      this.leave();
    }
  }
}
