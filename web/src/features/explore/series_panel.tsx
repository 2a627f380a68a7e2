/** The series that were found, with their figures over the window. */

import { gpuPath, hostPath } from "../../panels/ladder";
import { Link } from "../../ui/navigation";
import { Panel } from "../../ui/panel";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatAge } from "../../ui/times";
import { formatNumber, formatValue } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";
import type { Explored, SeriesSummary } from "./explore_rows";

const GREATEST_FIRST = { key: "mean", descending: true };
const OLD_MS = 10_000;

function figure(key: "last" | "mean" | "min" | "max", label: string, wide: boolean): Column<SeriesSummary> {
  return {
    key,
    label,
    width: "96px",
    numeric: true,
    wide,
    cell: (row) => formatValue(row[key], row.series.metric, row.series.unit),
    sortBy: (row) => row[key],
  };
}

function placeOf(row: SeriesSummary, view: View): string | undefined {
  const { gpu, host } = row.series;
  if (gpu !== "") return keepWindow(view, gpuPath(gpu));
  return host === "" ? undefined : keepWindow(view, hostPath(host));
}

function columnsOf(view: View, end: number): Column<SeriesSummary>[] {
  return [
    {
      key: "series",
      label: "Series",
      width: "minmax(160px, 3fr)",
      cell: (row) => {
        const to = placeOf(row, view);
        const label = row.series.label || "all";
        return (
          <span className="series-name">
            <i style={{ background: `var(--${row.stroke ?? "ghost"})` }} />
            {to === undefined ? label : <Link to={to}>{label}</Link>}
          </span>
        );
      },
      sortBy: (row) => row.series.label,
    },
    {
      key: "metric",
      label: "Metric",
      width: "minmax(140px, 1.5fr)",
      wide: true,
      cell: (row) => `${row.series.metric} ${row.series.aggregate}`,
      sortBy: (row) => row.series.metric,
    },
    figure("last", "Last", false),
    {
      key: "age",
      label: "Told",
      width: "80px",
      numeric: true,
      wide: true,
      cell: (row) => {
        if (row.lastAt === null) return "never";
        return end - row.lastAt <= OLD_MS ? "now" : `${formatAge(end - row.lastAt)} ago`;
      },
      sortBy: (row) => row.lastAt,
    },
    figure("mean", "Mean", false),
    figure("min", "Lowest", true),
    figure("max", "Highest", true),
  ];
}

export function SeriesPanel({ explored, view }: { explored: Explored; view: View }) {
  const { summaries, more, columns } = explored;
  if (summaries.length === 0) return null;
  return (
    <Panel
      title="Series"
      sub={`${formatNumber(summaries.length)}${more > 0 ? `, and ${formatNumber(more)} more that a filter would show` : ""}`}
    >
      <Table
        label="Series"
        rows={summaries}
        columns={columnsOf(view, columns.ts.at(-1) ?? 0)}
        keyOf={(row) => row.series.column}
        sort={parseSort(view.params.get("sort"), GREATEST_FIRST)}
        onSort={(sort) => view.set({ sort })}
        height={392}
        none="No series."
      />
    </Panel>
  );
}
