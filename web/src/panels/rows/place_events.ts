/** Place marks of events on a time line, so that none covers another. */

interface Timed {
  at: number;
  severity: string;
}

export interface Mark<T> {
  event: T;
  /** Pixels from the left edge. */
  left: number;
  /** How many others the mark stands for. */
  more: number;
  /** Room for its label. */
  labelPx: number;
  /** True where the label stands left of the mark, as the right has no room. */
  isFlipped: boolean;
}

/** Room for a short label. */
const APART_PX = 92;
/** Room for any label. */
const WHOLE_PX = 280;
const LABEL_GAP_PX = 6;
const WEIGHT: Record<string, number> = { critical: 4, error: 3, warning: 2, info: 1 };

function weigh(event: Timed): number {
  return WEIGHT[event.severity] ?? 0;
}

/** The newest mark is often at the right edge: its label goes to the left where the mark before leaves room for both. */
function flipLast<T>(marks: readonly Mark<T>[]): void {
  const last = marks.at(-1);
  const before = marks.at(-2);
  if (last === undefined || last.labelPx >= 2 * APART_PX) return;
  const room = before === undefined ? last.left : before.labelPx - APART_PX;
  if (room < Math.max(APART_PX, last.labelPx)) return;
  last.isFlipped = true;
  last.labelPx = Math.min(room, WHOLE_PX);
  if (before !== undefined) before.labelPx -= last.labelPx;
}

/** Marks from left to right; events too close together share one, which shows the gravest of them. */
export function placeEvents<T extends Timed>(
  events: readonly T[],
  [from, to]: readonly [number, number],
  widthPx: number,
): Mark<T>[] {
  const marks: Mark<T>[] = [];
  for (const event of [...events].sort((a, b) => a.at - b.at)) {
    if (event.at < from || event.at >= to) continue;
    const left = ((event.at - from) / (to - from)) * widthPx;
    const last = marks.at(-1);
    if (last === undefined || left - last.left >= APART_PX) {
      marks.push({ event, left, more: 0, labelPx: 0, isFlipped: false });
      continue;
    }
    last.more += 1;
    if (weigh(event) > weigh(last.event)) last.event = event;
  }
  marks.forEach((mark, index) => {
    mark.labelPx = (marks[index + 1]?.left ?? widthPx) - mark.left - LABEL_GAP_PX;
  });
  flipLast(marks);
  return marks;
}
