/** Every metric: what it is, its unit, how it may be read. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { catalogQuery } from "../../api/fleet";
import type { WireMetric } from "../../api/wire";
import { Filter, focusFilter } from "../../panels/gpu_panel";
import { Pairs } from "../../ui/facts";
import { Link } from "../../ui/navigation";
import { Page } from "../../ui/page";
import { Answered, Panel } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { NO_HEALTH } from "../../ui/top_bar";
import { formatNumber, isShare, unitWord } from "../../ui/units";
import { keepWindow, useView, type View } from "../../ui/view";
import "./catalogue.css";

const BY_NAME = { key: "name", descending: false };

/** The unit as people write it, with its code where that differs: "°C", "% of 1". */
function unitCell({ name, unit }: WireMetric): string {
  return isShare(name, unit) ? "%" : unitWord(unit) || "–";
}

/** The values that are believed: "0 to 1", "from 0", "any". */
function rangeOf({ minimum, maximum }: WireMetric): string {
  if (minimum === null) return maximum === null ? "any" : `up to ${maximum}`;
  return maximum === null ? `from ${minimum}` : `${minimum} to ${maximum}`;
}

const COLUMNS: readonly Column<WireMetric>[] = [
  {
    key: "name",
    label: "Metric",
    width: "minmax(220px, 2fr)",
    cell: (metric) => metric.name,
    sortBy: (metric) => metric.name,
  },
  {
    key: "kind",
    label: "Of",
    width: "88px",
    wide: true,
    cell: (metric) => metric.kind,
    sortBy: (metric) => metric.kind,
  },
  {
    key: "unit",
    label: "Unit",
    width: "72px",
    cell: unitCell,
    sortBy: (metric) => metric.unit,
  },
  {
    key: "type",
    label: "Type",
    width: "80px",
    wide: true,
    cell: (metric) => metric.type,
    sortBy: (metric) => metric.type,
  },
  {
    key: "aggregates",
    label: "Aggregates",
    width: "minmax(120px, 1.2fr)",
    wide: true,
    cell: (metric) => metric.aggregates.join(", ") || "events, see Events",
  },
  {
    key: "description",
    label: "What it is",
    width: "minmax(160px, 2.4fr)",
    wide: true,
    cell: (metric) => <span title={metric.description}>{metric.description}</span>,
  },
];

function matches(metric: WireMetric, words: readonly string[]): boolean {
  const all = [metric.name, metric.description, metric.unit, ...metric.aliases].join(" ").toLowerCase();
  return words.every((word) => all.includes(word));
}

function Detail({ metric, view }: { metric: WireMetric; view: View }) {
  const values = Object.entries(metric.values);
  return (
    <Panel
      title={metric.name}
      className="metric-detail"
      tools={
        metric.aggregates.length > 0 && (
          <Link to={keepWindow(view, "/explore", { metrics: metric.name })} className="control">
            Explore
          </Link>
        )
      }
    >
      <p className="panel-note">{metric.description}</p>
      <Pairs
        pairs={[
          { name: "Of", value: metric.kind },
          { name: "Unit", value: metric.unit === "1" ? "none" : unitCell(metric) || "none" },
          { name: "Type", value: metric.type },
          { name: "Rolled up as", value: metric.rollup },
          { name: "Aggregates", value: metric.aggregates.join(", ") || "none: it is an event" },
          { name: "Range", value: rangeOf(metric) },
          { name: "Parts", value: metric.labels.join(", ") || "none" },
          { name: "Priority", value: metric.priority },
          { name: "Also called", value: metric.aliases.join(", ") || "–" },
          ...values.map(([value, meaning]) => ({
            name: metric.bitmask ? `bit ${value}` : value,
            value: meaning,
          })),
        ]}
      />
    </Panel>
  );
}

export function CataloguePage() {
  const view = useView("1h");
  const query = useQuery(catalogQuery);
  const find = view.params.get("q") ?? "";
  const kind = view.params.get("kind") ?? "";
  const metrics = useMemo(() => [...(query.data?.values() ?? [])], [query.data]);
  const kinds = useMemo(() => [...new Set(metrics.map((metric) => metric.kind))], [metrics]);
  const shown = useMemo(() => {
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    return metrics.filter((metric) => (kind === "" || metric.kind === kind) && matches(metric, words));
  }, [metrics, find, kind]);
  const chosen = query.data?.get(view.params.get("metric") ?? "");
  return (
    <Page
      title="Catalogue"
      view={view}
      health={NO_HEALTH}
      up="/"
      keys={{ f: focusFilter }}
      keyHelp={[["F", "filter the list"]]}
    >
      <div className="say">
        <h1>Catalogue</h1>
        <p className="verdict-line">Every metric that you may read, and the ways it may be read.</p>
      </div>
      <div className={chosen === undefined ? undefined : "catalogue-body"}>
        <Panel
          title="Metrics"
          sub={query.data === undefined ? "" : formatNumber(shown.length)}
          tools={<Filter label="Filter metrics" view={view} />}
        >
          <div className="filters">
            <Segment
              label="of what"
              choices={[
                { value: "", label: "All" },
                ...kinds.map((each) => ({ value: each, label: each.replaceAll("_", " ") })),
              ]}
              value={kind}
              onChoose={(value) => view.set({ kind: value })}
            />
          </div>
          <Answered query={query} waitsFor="the catalogue" height={320}>
            {() => (
              <Table
                label="Metrics"
                rows={shown}
                columns={chosen === undefined ? COLUMNS : COLUMNS.slice(0, 4)}
                keyOf={(metric) => metric.name}
                linkOf={(metric) => keepAll(view, metric.name)}
                sort={parseSort(view.params.get("sort"), BY_NAME)}
                onSort={(sort) => view.set({ sort })}
                height="page"
                none={`No metric matches “${find}”.`}
              />
            )}
          </Answered>
        </Panel>
        {chosen !== undefined && <Detail metric={chosen} view={view} />}
      </div>
    </Page>
  );
}

/** Address of the same list with one metric opened beside it. */
function keepAll(view: View, metric: string): string {
  const params = new URLSearchParams(view.params);
  params.set("metric", metric);
  return `/catalog?${params.toString()}`;
}
