/** Paint what uPlot does not know: hatched gaps, the soft edge after the watermark, limit lines. */

import type uPlot from "uplot";
import type { Gap } from "../model/columns";
import { colour } from "./theme";

export interface Marks {
  gaps: readonly Gap[];
  /** Everything before this instant is complete; null where it is not known. */
  completeThrough: number | null;
  /** The newest sample, where it is older than it should be. */
  staleSince: number | null;
  /** Value of a limit line; what it is called stands in the gutter. */
  limit: number | null;
}

const SOFT_STEPS = 4;
const SOFT_ALPHA = 0.28;

function box(u: uPlot): { left: number; top: number; right: number; bottom: number } {
  const { left, top, width, height } = u.bbox;
  return { left, top, right: left + width, bottom: top + height };
}

function hatching(context: CanvasRenderingContext2D, ratio: number): CanvasPattern | null {
  const size = Math.round(6 * ratio);
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (pen === null) return null;
  pen.fillStyle = colour("surface-2");
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colour("hatch");
  pen.lineWidth = ratio;
  for (const shift of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function paintGaps(u: uPlot, gaps: readonly Gap[]): void {
  if (gaps.length === 0) return;
  const { left, top, right, bottom } = box(u);
  const pattern = hatching(u.ctx, devicePixelRatio);
  for (const gap of gaps) {
    const start = Math.max(left, Math.round(u.valToPos(gap.start, "x", true)));
    const end = Math.min(right, Math.round(u.valToPos(gap.end, "x", true)));
    if (end <= start || pattern === null) continue;
    u.ctx.fillStyle = pattern;
    u.ctx.fillRect(start, top, Math.max(end - start, 2), bottom - top);
    u.ctx.fillStyle = colour("hatch");
    u.ctx.fillRect(start, top, devicePixelRatio, bottom - top);
    u.ctx.fillRect(end - devicePixelRatio, top, devicePixelRatio, bottom - top);
  }
}

function dashedLine(
  u: uPlot,
  stroke: string,
  dash: number[],
  points: [number, number, number, number],
): void {
  const [x0, y0, x1, y1] = points;
  u.ctx.strokeStyle = stroke;
  u.ctx.lineWidth = devicePixelRatio;
  u.ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  u.ctx.beginPath();
  u.ctx.moveTo(x0, y0);
  u.ctx.lineTo(x1, y1);
  u.ctx.stroke();
  u.ctx.setLineDash([]);
}

/** Fade in four even steps what may still change, behind a dotted line at the watermark. */
function paintSoftEdge(u: uPlot, completeThrough: number): void {
  const { left, top, right, bottom } = box(u);
  const edge = Math.round(u.valToPos(completeThrough, "x", true)) + devicePixelRatio / 2;
  if (edge >= right || edge < left) return;
  u.ctx.globalAlpha = SOFT_ALPHA;
  u.ctx.fillStyle = colour("surface");
  for (let step = 0; step < SOFT_STEPS; step += 1) {
    const start = edge + ((right - edge) * step) / SOFT_STEPS;
    u.ctx.fillRect(start, top, right - start, bottom - top);
  }
  u.ctx.globalAlpha = 1;
  dashedLine(u, colour("control"), [2, 2], [edge, top, edge, bottom]);
}

function paintLimit(u: uPlot, limit: number): void {
  const { left, top, right, bottom } = box(u);
  const y = Math.round(u.valToPos(limit, "y", true)) + devicePixelRatio / 2;
  if (y < top - 1 || y > bottom) return;
  dashedLine(u, colour("bad-mark"), [5, 3], [left, y, right, y]);
}

/** A line at an instant: at the last sample behind which nothing came although it should have. */
function paintInstant(u: uPlot, at: number, stroke: string): void {
  const { left, top, right, bottom } = box(u);
  const x = Math.round(u.valToPos(at, "x", true)) + devicePixelRatio / 2;
  if (x >= left && x <= right) dashedLine(u, stroke, [], [x, top, x, bottom]);
}

/** Paint all marks over the lines of one plot. */
export function paintMarks(u: uPlot, marks: Marks): void {
  u.ctx.save();
  paintGaps(u, marks.gaps);
  if (marks.completeThrough !== null) paintSoftEdge(u, marks.completeThrough);
  if (marks.staleSince !== null) paintInstant(u, marks.staleSince, colour("warn-mark"));
  if (marks.limit !== null) paintLimit(u, marks.limit);
  u.ctx.restore();
}
