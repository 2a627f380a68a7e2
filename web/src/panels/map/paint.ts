/** Paint the cells of a map on a canvas: solid, hollow, dash and hatched differ without colour. */

import { colour } from "../../chart/theme";
import type { Tone } from "../../ui/icon";
import { type Cells, type MapMetric, NO_DATA } from "./cells";
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

function membersOf(tones: readonly Tone[], tone: Tone): number[] {
  const found: number[] = [];
  tones.forEach((each, at) => {
    if (each === tone) found.push(at);
  });
  return found;
}

function paintHealth(pen: Pen, { layout, cells }: Painting): void {
  fillAll(pen, layout, membersOf(cells.tones, "ok"), "surface-3");
  fillAll(pen, layout, membersOf(cells.tones, "warn"), "warn-mark");
  frameAll(pen, layout, membersOf(cells.tones, "bad"), "bad-mark");
  dashAll(pen, layout, membersOf(cells.tones, "none"));
}

function stepMembers(steps: Uint8Array): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  steps.forEach((step, at) => {
    const group = groups.get(step);
    if (group === undefined) groups.set(step, [at]);
    else group.push(at);
  });
  return groups;
}

function inkToken({ cells, shown }: Painting, at: number): string {
  const step = cells.steps[at] ?? NO_DATA;
  return step === NO_DATA ? "text-2" : `${shown.scale}${step}-ink`;
}

function paintMetric(pen: Pen, painting: Painting): void {
  const { layout, cells, shown } = painting;
  for (const [step, members] of stepMembers(cells.steps)) {
    if (step === NO_DATA) hatchAll(pen, layout, members);
    else fillAll(pen, layout, members, `${shown.scale}${step}`);
  }
  frameAll(pen, layout, membersOf(cells.tones, "bad"), "bad-mark");
  dashAll(pen, layout, membersOf(cells.tones, "none"));
  cornerAll(pen, layout, membersOf(cells.tones, "warn"), (at) => colour(inkToken(painting, at)));
}

function paintLabels(pen: Pen, painting: Painting, namesOnly: boolean): void {
  const { layout, cells, label } = painting;
  pen.font = painting.font;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  cells.values.forEach((value, at) => {
    if (namesOnly || value === null || cells.tones[at] === "bad" || cells.tones[at] === "none") return;
    pen.fillStyle = colour(inkToken(painting, at));
    const x = (layout.xs[at] ?? 0) + layout.cellWidth / 2;
    pen.fillText(label(value), x, (layout.ys[at] ?? 0) + layout.cellHeight / 2 + 1);
  });
  pen.textAlign = "left";
  for (const rack of layout.racks) {
    pen.fillStyle = colour("text-2");
    for (const host of rack.hosts)
      pen.fillText(host.host, host.x, host.y + layout.cellHeight / 2 + 1, HOST_NAME_PX);
  }
}

/** Paint the whole map; 10,000 cells take a few milliseconds. */
export function paintMap(canvas: HTMLCanvasElement, painting: Painting): void {
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  const { layout, shown } = painting;
  const ratio = devicePixelRatio;
  const width = Math.max(1, Math.round(layout.width * ratio));
  const height = Math.max(1, Math.round(layout.height * ratio));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, layout.width, layout.height);
  if (shown.key === "health") paintHealth(pen, painting);
  else paintMetric(pen, painting);
  if (layout.labelled) paintLabels(pen, painting, shown.key === "health");
}
