/** What a question was read as, piece by piece, and the turns in words that change one piece and leave the rest. */

import type { WireAsk } from "../../api/wire";
import { formatRange } from "../../ui/times";

export interface Choice {
  label: string;
  /** What is asked as the next turn. */
  turn: string;
}

export interface Chip {
  name: string;
  value: string;
  title?: string;
  /** Empty where the piece cannot be changed by itself. */
  choices: readonly Choice[];
}

function choices(pairs: readonly (readonly [label: string, turn: string])[]): readonly Choice[] {
  return pairs.map(([label, turn]) => ({ label, turn }));
}

const METRICS = choices([
  ["utilisation", "what about GPU utilization"],
  ["power", "what about power"],
  ["temperature", "what about temperature"],
  ["memory used", "what about memory used"],
]);
const AGGREGATES = choices([
  ["mean", "and the average"],
  ["minimum", "and the minimum"],
  ["maximum", "and the maximum"],
  ["95th percentile", "and the 95th percentile"],
]);
const DIMENSIONS = choices([
  ["cluster", "break it down by cluster"],
  ["host", "break it down by host"],
  ["GPU", "break it down by GPU"],
  ["job", "break it down by job"],
  ["team", "break it down by team"],
]);
const TIMES = choices([
  ["last hour", "in the last hour"],
  ["last 24 hours", "in the last 24 hours"],
  ["last 7 days", "in the last 7 days"],
  ["last 30 days", "in the last 30 days"],
]);

/** Columns whose names can be told in a turn, and the word that says what they are. */
const PLACES: Record<string, string> = { cluster: "cluster", cluster_id: "cluster" };

function filterChips(filter: WireAsk["interpretation"]["filter"], clusters: readonly string[]): Chip[] {
  return Object.entries(filter).map(([name, values]) => {
    const word = PLACES[name];
    const others = word === undefined ? [] : clusters.filter((cluster) => !values.includes(cluster));
    return {
      name,
      value: values.join(", "),
      choices: choices(others.map((cluster) => [cluster, `only ${word} ${cluster}`])),
    };
  });
}

function timeChip(range: NonNullable<WireAsk["interpretation"]["timeRange"]>): Chip {
  return {
    name: range.assumed ? "time, assumed" : "time",
    value: `${formatRange(Date.parse(range.from), Date.parse(range.to))} UTC`,
    title: range.words,
    choices: TIMES,
  };
}

/** The pieces of a reading; of what no figures are asked, only the time can be changed. */
export function chipsOf({ interpretation }: WireAsk, clusters: readonly string[]): Chip[] {
  const { kind, metrics, aggregation, dimensions, filter, timeRange } = interpretation;
  const ofFigures = (found: readonly Choice[]) => (kind === "figures" ? found : []);
  const chips: Chip[] = [
    { name: "metric", value: metrics.join(", "), choices: ofFigures(METRICS) },
    { name: "as", value: aggregation.join(", "), choices: ofFigures(AGGREGATES) },
    ...filterChips(filter, clusters),
    { name: "by", value: dimensions.join(", "), choices: ofFigures(DIMENSIONS) },
    ...(timeRange === null ? [] : [timeChip(timeRange)]),
  ];
  return chips.filter(({ value }) => value !== "");
}
