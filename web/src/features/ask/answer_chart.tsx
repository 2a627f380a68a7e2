/** A chart of an answer's table: lines over time, or bars by name. */

import { useMemo, useState } from "react";
import type { WireAskTable } from "../../api/wire";
import { createCursor } from "../../chart/cursor";
import type { Picture } from "../../chart/options";
import { Plot } from "../../chart/plot";
import { TimeAxis } from "../../chart/time_axis";
import { sayValue } from "../../ui/rows_table";
import { formatClock, formatTick } from "../../ui/times";
import { formatTicks, unitWord } from "../../ui/units";
import { type ChartData, chartOf } from "./chart_data";

const HEIGHT_PX = 220;
const BARS_MAXIMUM = 24;

function nothing(): void {
  // There is no window to zoom: the answer is of the time that was asked for.
}

function Lines({ data }: { data: Extract<ChartData, { kind: "lines" }> }) {
  const [cursor] = useState(createCursor);
  const picture = useMemo<Picture>(
    () => ({
      columns: data.columns,
      lines: data.names.map((column, at) => ({
        column,
        stroke: (["s1", "s2", "s3", "s4", "s5"] as const)[at] ?? "s5",
      })),
      x: data.x,
      y: { kind: "zero", atLeast: 0 },
      hold: [],
      gaps: [],
      completeThrough: null,
      staleSince: null,
      limit: null,
      ticks: (values) => formatTicks(values, data.metric, data.unit),
    }),
    [data],
  );
  return (
    <div className="answer-lines">
      <ul className="key">
        {data.names.map((name, at) => (
          <li key={name}>
            <i style={{ background: `var(--s${at + 1})` }} /> {name}
          </li>
        ))}
      </ul>
      <Plot
        picture={picture}
        height={HEIGHT_PX}
        label={`${data.label} over time; the table below holds its figures`}
        cursor={cursor}
        group="answer"
        onZoom={nothing}
        onZoomOut={nothing}
      />
      <TimeAxis x={data.x} cursor={cursor} tick={formatTick} clock={formatClock} />
    </div>
  );
}

function Bars({ data }: { data: Extract<ChartData, { kind: "bars" }> }) {
  const shown = data.bars.slice(0, BARS_MAXIMUM);
  const most = Math.max(...shown.map((bar) => Math.abs(bar.value)), Number.EPSILON);
  const unit = unitWord(data.unit);
  return (
    <>
      <p className="chart-of">{data.label}</p>
      <ol className="bars" aria-label={data.label}>
        {shown.map((bar) => (
          <li key={bar.name}>
            <span title={bar.name}>{bar.name}</span>
            <span className="bar-of" aria-hidden="true">
              <i style={{ width: `${(Math.abs(bar.value) / most) * 100}%` }} />
            </span>
            <b>{[sayValue(bar.value), unit].filter(Boolean).join("\u00a0")}</b>
          </li>
        ))}
      </ol>
    </>
  );
}

export function AnswerChart({ table, chart }: { table: WireAskTable; chart: string }) {
  const data = useMemo(() => chartOf(table, chart), [table, chart]);
  if (data === null) return null;
  return data.kind === "lines" ? <Lines data={data} /> : <Bars data={data} />;
}
