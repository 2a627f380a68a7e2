/** Paint the cells of a map on a canvas: solid, hollow, dash and hatched differ without colour. */

import { colour } from "../../chart/theme";
import { type Cells, codeOf, type MapMetric, NO_DATA, toneAt, valueAt } from "./cells";
import type { MapLayout } from "./layout";

/** Longer names are drawn narrower. */
const HOST_NAME_PX = 76;

export interface Painting {
  layout: MapLayout;
  cells: Cells;
  shown: MapMetric;
  /** Text of a cell that is large enough for one. */
  label: (value: number) => string;
  font: string;
}

type Pen = CanvasRenderingContext2D;

function fillAll(pen: Pen, layout: MapLayout, members: readonly number[], token: string): void {
  pen.fillStyle = colour(token);
  for (const at of members) {
    pen.fillRect(layout.xs[at] ?? 0, layout.ys[at] ?? 0, layout.cellWidth, layout.cellHeight);
  }
}

/** A frame inside the cell, so that hollow reads as hollow whatever stands beside it. */
function frameAll(pen: Pen, layout: MapLayout, members: readonly number[], token: string): void {
  const thick = layout.cellWidth >= 10 ? 2 : 1;
  const { cellWidth: width, cellHeight: height } = layout;
  for (const at of members) {
    const [x, y] = [layout.xs[at] ?? 0, layout.ys[at] ?? 0];
    pen.fillStyle = colour(token);
    pen.fillRect(x, y, width, height);
    if (width <= 2 * thick) continue;
    pen.fillStyle = colour("surface");
    pen.fillRect(x + thick, y + thick, width - 2 * thick, height - 2 * thick);
  }
}

function dashAll(pen: Pen, layout: MapLayout, members: readonly number[]): void {
  pen.fillStyle = colour("none-mark");
  const high = Math.max(1, Math.round(layout.cellHeight / 5));
  for (const at of members) {
    const top = (layout.ys[at] ?? 0) + (layout.cellHeight - high) / 2;
    pen.fillRect(layout.xs[at] ?? 0, Math.round(top), layout.cellWidth, high);
  }
}

function hatchAll(pen: Pen, layout: MapLayout, members: readonly number[]): void {
  fillAll(pen, layout, members, "surface-2");
  if (layout.cellWidth < 4) return;
  pen.strokeStyle = colour("hatch");
  pen.lineWidth = 1;
  pen.beginPath();
  for (const at of members) {
    const [x, y] = [layout.xs[at] ?? 0, layout.ys[at] ?? 0];
    pen.moveTo(x, y + layout.cellHeight);
    pen.lineTo(x + Math.min(layout.cellWidth, layout.cellHeight), y);
  }
  pen.stroke();
}

/** A small triangle in the corner of a cell that has room for it. */
function cornerAll(
  pen: Pen,
  layout: MapLayout,
  members: readonly number[],
  inkOf: (at: number) => string,
): void {
  if (layout.cellWidth < 10) return;
  for (const at of members) {
    const x = (layout.xs[at] ?? 0) + layout.cellWidth - 2;
    const y = (layout.ys[at] ?? 0) + 2;
    pen.fillStyle = inkOf(at);
    pen.beginPath();
    pen.moveTo(x - 6, y + 5);
    pen.lineTo(x, y + 5);
    pen.lineTo(x - 3, y);
    pen.fill();
  }
}

/** Cells, of those that are to be painted, by their code. */
function grouped(codes: Uint8Array, painted: Iterable<number>): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  for (const at of painted) {
    const code = codes[at] ?? 0;
    const group = groups.get(code);
    if (group === undefined) groups.set(code, [at]);
    else group.push(at);
  }
  return groups;
}

function paintHealth(pen: Pen, { layout, cells }: Painting, painted: Iterable<number>): void {
  const tones = grouped(cells.tones, painted);
  fillAll(pen, layout, tones.get(codeOf("ok")) ?? [], "surface-3");
  fillAll(pen, layout, tones.get(codeOf("warn")) ?? [], "warn-mark");
  frameAll(pen, layout, tones.get(codeOf("bad")) ?? [], "bad-mark");
  dashAll(pen, layout, tones.get(codeOf("none")) ?? []);
}

function inkToken({ cells, shown }: Painting, at: number): string {
  const step = cells.steps[at] ?? NO_DATA;
  return step === NO_DATA ? "text-2" : `${shown.scale}${step}-ink`;
}

function paintMetric(pen: Pen, painting: Painting, painted: readonly number[]): void {
  const { layout, cells, shown } = painting;
  for (const [step, members] of grouped(cells.steps, painted)) {
    if (step === NO_DATA) hatchAll(pen, layout, members);
    else fillAll(pen, layout, members, `${shown.scale}${step}`);
  }
  const tones = grouped(cells.tones, painted);
  frameAll(pen, layout, tones.get(codeOf("bad")) ?? [], "bad-mark");
  dashAll(pen, layout, tones.get(codeOf("none")) ?? []);
  cornerAll(pen, layout, tones.get(codeOf("warn")) ?? [], (at) => colour(inkToken(painting, at)));
}

function paintLabels(pen: Pen, painting: Painting, namesOnly: boolean): void {
  const { layout, cells, label } = painting;
  pen.font = `600 ${painting.font}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  for (let at = 0; at < cells.steps.length && !namesOnly; at += 1) {
    const value = valueAt(cells, at);
    const tone = toneAt(cells, at);
    if (value === null || tone === "bad" || tone === "none") continue;
    pen.fillStyle = colour(inkToken(painting, at));
    const x = (layout.xs[at] ?? 0) + layout.cellWidth / 2;
    pen.fillText(label(value), x, (layout.ys[at] ?? 0) + layout.cellHeight / 2 + 1);
  }
  pen.font = painting.font;
  pen.textAlign = "left";
  for (const rack of layout.racks) {
    pen.fillStyle = colour("text-2");
    for (const host of rack.hosts)
      pen.fillText(host.host, host.x, host.y + layout.cellHeight / 2 + 1, HOST_NAME_PX);
  }
}

/** What stands on a canvas. */
const painted = new WeakMap<HTMLCanvasElement, Painting & { ratio: number; theme: number }>();

/** Cells that differ from what stands on the canvas; null where all of it has to be painted. */
function changed(before: Painting, after: Painting): number[] | null {
  const { layout, shown, cells } = after;
  if (before.layout !== layout || before.shown !== shown || layout.labelled) return null;
  const found: number[] = [];
  for (let at = 0; at < cells.steps.length; at += 1) {
    if (cells.steps[at] !== before.cells.steps[at] || cells.tones[at] !== before.cells.tones[at])
      found.push(at);
  }
  return found;
}

function clear(pen: Pen, { layout }: Painting, cells: readonly number[]): void {
  for (const at of cells)
    pen.clearRect(layout.xs[at] ?? 0, layout.ys[at] ?? 0, layout.cellWidth, layout.cellHeight);
}

/** Give the canvas its size; true where that emptied it. */
function sized(canvas: HTMLCanvasElement, { width, height }: MapLayout, ratio: number): boolean {
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width === wide && canvas.height === high) return false;
  canvas.width = wide;
  canvas.height = high;
  return true;
}

/** Paint a map: of one that stands there already only the cells that changed. `theme` changes with the colours. */
export function paintMap(canvas: HTMLCanvasElement, painting: Painting, theme: number): void {
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  const { layout, shown } = painting;
  const ratio = devicePixelRatio;
  const before = painted.get(canvas);
  const isEmpty = sized(canvas, layout, ratio);
  const isSame = !isEmpty && before !== undefined && before.ratio === ratio && before.theme === theme;
  const some = isSame ? changed(before, painting) : null;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (some === null) pen.clearRect(0, 0, layout.width, layout.height);
  else clear(pen, painting, some);
  const cells = some ?? [...layout.xs.keys()];
  if (shown.key === "health") paintHealth(pen, painting, cells);
  else paintMetric(pen, painting, cells);
  if (layout.labelled) paintLabels(pen, painting, shown.key === "health");
  painted.set(canvas, { ...painting, ratio, theme });
}
