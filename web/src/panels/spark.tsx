/** A line small enough for a cell of a table. */

import type { Cell } from "../model/columns";

export interface SparkProps {
  values: readonly Cell[];
  low: number;
  high: number;
}

const WIDTH = 96;
const HEIGHT = 18;

/** Path of the values from left to right, broken where one is missing. */
function sparkPath(values: readonly Cell[], low: number, high: number): string {
  const step = WIDTH / Math.max(1, values.length - 1);
  const span = Math.max(high - low, Number.EPSILON);
  let path = "";
  let isPenDown = false;
  values.forEach((value, index) => {
    if (value === null) {
      isPenDown = false;
      return;
    }
    const y = HEIGHT - 1 - ((value - low) / span) * (HEIGHT - 2);
    path += `${isPenDown ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    isPenDown = true;
  });
  return path;
}

export function Spark({ values, low, high }: SparkProps) {
  return (
    <svg className="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path d={sparkPath(values, low, high)} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
