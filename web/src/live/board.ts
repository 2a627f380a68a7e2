/** Turn events of the stream into boards: one second of some place, one byte a GPU and metric, and exact sums. */

import { type ByteFrame, decodeBytes, type Lag, type MapCell, type Placed, placed, toLag } from "../api/map";
import { toInstant } from "../api/meta";

export interface Sum {
  count: number;
  sum: number;
  max: number;
  /** Which cell has the greatest. */
  cell: number;
}

export interface Board {
  at: number;
  lag: Lag;
  layout: string;
  cells: readonly MapCell[];
  frames: ReadonlyMap<string, ByteFrame>;
  sums: Readonly<Record<string, Sum>>;
}

type WireFrame = { low: number; high: number; frame: string } | { steps: string };

export interface WireBoard extends Partial<Placed> {
  at: string;
  behindMs: number;
  frames: Record<string, WireFrame>;
  sums: Record<string, Sum>;
}

const SKIP = 255;

/** The frame after some steps: how many cells are passed over, then the byte of the next; 255 only passes over. */
export function stepped(bytes: Uint8Array, steps: Uint8Array): Uint8Array {
  const next = bytes.slice();
  let cell = 0;
  for (let at = 0; at < steps.length; at += 1) {
    const gap = steps[at] ?? 0;
    cell += gap;
    if (gap === SKIP) continue;
    at += 1;
    next[cell] = steps[at] ?? 0;
    cell += 1;
  }
  return next;
}

function framesOf(wire: WireBoard, known: Board["frames"]): Board["frames"] {
  const frames = new Map(known);
  for (const [metric, frame] of Object.entries(wire.frames)) {
    if ("frame" in frame) {
      frames.set(metric, { bytes: decodeBytes(frame.frame), low: frame.low, high: frame.high });
      continue;
    }
    const before = known.get(metric);
    if (before !== undefined) {
      frames.set(metric, { ...before, bytes: stepped(before.bytes, decodeBytes(frame.steps)) });
    }
  }
  return frames;
}

/** The board of a snapshot; null where it speaks of GPUs that were never named here. */
export function fromSnapshot(wire: WireBoard): Board | null {
  const { layout = "", cells = null } = wire;
  const known = placed({ layout, cells });
  if (known === null) return null;
  return {
    at: toInstant(wire.at) ?? 0,
    lag: toLag(wire.behindMs),
    layout,
    cells: known,
    frames: framesOf(wire, new Map()),
    sums: wire.sums,
  };
}

/** The board after what changed. */
export function afterDelta(board: Board, wire: WireBoard): Board {
  const frames = framesOf(wire, board.frames);
  return { ...board, at: toInstant(wire.at) ?? board.at, lag: toLag(wire.behindMs), frames, sums: wire.sums };
}
