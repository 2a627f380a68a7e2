/** The agents: who delivers, how far behind, how far their clocks are off; and debug sessions. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { collectorsQuery } from "../../api/custody";
import { factsQuery } from "../../api/events";
import { groupedQuery } from "../../api/grouped";
import type { WireCollectorPage } from "../../api/wire";
import { hostPath } from "../../panels/ladder";
import { Tiles } from "../../ui/facts";
import { StatusWord, type Tone } from "../../ui/icon";
import { Page } from "../../ui/page";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatClock, formatDuration } from "../../ui/times";
import { NO_HEALTH } from "../../ui/top_bar";
import { formatNumber, formatValue } from "../../ui/units";
import { keepWindow, useView } from "../../ui/view";
import { DebugPanel } from "./debug_panel";

const FURTHEST_FIRST = { key: "lag", descending: true };
const LATE_MS = 30_000;
const FACTS = 2000;
const MINUTES_5 = { live: true, lengthMs: 300_000 } as const;
const SKEW = "node_clock_offset_seconds";
const SPOOL = "agent_spool_waiting_bytes";

type Collector = WireCollectorPage["collectors"][number];

interface Row extends Collector {
  version: string;
  /** How far the clock of the host is ahead; null where it is not told. */
  skewSeconds: number | null;
  spoolBytes: number | null;
}

/** The time up to which a collector's samples have come, in ms; null where it has sent events alone. */
function watermarkOf(row: Collector): number | null {
  return row.watermark === null ? null : Date.parse(row.watermark);
}

function toneOf(row: Collector): [Tone, string] {
  if (row.lagMs === null) return ["none", "No samples"];
  if (row.idle) return ["bad", "Silent"];
  if (row.backlog) return ["warn", "Catching up"];
  return row.lagMs > LATE_MS ? ["warn", "Late"] : ["ok", "Delivering"];
}

const COLUMNS: readonly Column<Row>[] = [
  {
    key: "collector",
    label: "Collector",
    width: "minmax(112px, 1.4fr)",
    cell: (row) => row.collectorId,
    sortBy: (row) => row.collectorId,
  },
  {
    key: "cluster",
    label: "Cluster",
    width: "minmax(72px, .8fr)",
    wide: true,
    cell: (row) => row.clusterId,
    sortBy: (row) => row.clusterId,
  },
  {
    key: "version",
    label: "Version",
    width: "minmax(72px, .7fr)",
    wide: true,
    cell: (row) => row.version || "–",
    sortBy: (row) => row.version || null,
  },
  {
    key: "lag",
    label: "Lag",
    width: "80px",
    numeric: true,
    cell: (row) => {
      const lag = row.lagMs;
      return lag === null ? "–" : formatDuration(lag);
    },
    sortBy: (row) => row.lagMs,
  },
  {
    key: "watermark",
    label: "Complete through",
    width: "112px",
    numeric: true,
    wide: true,
    cell: (row) => {
      const at = watermarkOf(row);
      return at === null ? "–" : formatClock(at);
    },
    sortBy: watermarkOf,
  },
  {
    key: "spool",
    label: "Spool",
    width: "80px",
    numeric: true,
    wide: true,
    cell: (row) => formatValue(row.spoolBytes, SPOOL, "By"),
    sortBy: (row) => row.spoolBytes,
  },
  {
    key: "skew",
    label: "Clock off",
    width: "84px",
    numeric: true,
    wide: true,
    cell: (row) => (row.skewSeconds === null ? "–" : `${(row.skewSeconds * 1000).toFixed(0)} ms`),
    sortBy: (row) => (row.skewSeconds === null ? null : Math.abs(row.skewSeconds)),
  },
  {
    key: "state",
    label: "State",
    width: "120px",
    cell: (row) => {
      const [tone, word] = toneOf(row);
      return <StatusWord tone={tone} word={word} />;
    },
    sortBy: (row) => ["bad", "warn", "none", "ok"].indexOf(toneOf(row)[0]),
  },
];

/** Newest figure of a metric by host. */
function useByHost(metric: string): ReadonlyMap<string, number> {
  const { data } = useQuery(
    groupedQuery({
      metrics: [metric],
      aggregate: "",
      filters: {},
      groupBy: "host",
      window: MINUTES_5,
      resolution: "range",
      limit: 5000,
    }),
  );
  return useMemo(() => {
    const found = new Map<string, number>();
    for (const series of data?.series ?? []) {
      const value = data?.columns.values[series.column]?.findLast((cell) => cell !== null);
      if (typeof value === "number") found.set(series.host, (found.get(series.host) ?? 0) + value);
    }
    return found;
  }, [data]);
}

function useRowsOf(collectors: readonly Collector[]): Row[] {
  const facts = useQuery(factsQuery({ metric: "agent_info", limit: FACTS }));
  const skew = useByHost(SKEW);
  const spool = useByHost(SPOOL);
  return useMemo(() => {
    const versions = new Map(facts.data?.map((fact) => [fact.host, fact.attributes["version"] ?? ""]));
    return collectors.map((row) => ({
      ...row,
      version: versions.get(row.hostId) ?? "",
      skewSeconds: skew.get(row.hostId) ?? null,
      spoolBytes: spool.get(row.hostId) ?? null,
    }));
  }, [collectors, facts.data, skew, spool]);
}

function Totals({ rows }: { rows: readonly Row[] }) {
  const states = rows.map((row) => toneOf(row)[1]);
  const silent = states.filter((state) => state === "Silent").length;
  const late = states.filter((state) => state === "Late" || state === "Catching up").length;
  const versions = new Set(rows.map((row) => row.version).filter(Boolean));
  const furthest = rows.reduce((most, row) => Math.max(most, row.lagMs ?? 0), 0);
  return (
    <Tiles
      label="Collectors now"
      tiles={[
        {
          name: "Collectors",
          value: formatNumber(rows.length),
          than: `known, ${formatNumber(silent)} silent`,
        },
        {
          name: "Behind",
          value: formatNumber(late),
          than: late > 0 ? "late or catching up" : silent > 0 ? "all others keep up" : "all keep up",
        },
        { name: "Furthest behind", value: formatDuration(furthest), than: "the slowest of them" },
        {
          name: "Versions",
          value: versions.size === 0 ? "–" : [...versions].slice(0, 3).join(", "),
          than: versions.size > 3 ? `and ${formatNumber(versions.size - 3)} more` : "",
        },
      ]}
    />
  );
}

const NONE: readonly Collector[] = [];

export function CollectorsPage() {
  const view = useView("1h");
  const query = useQuery(collectorsQuery);
  const rows = useRowsOf(query.data?.collectors ?? NONE);
  return (
    <Page title="Collectors" view={view} health={NO_HEALTH} up="/">
      <div className="say">
        <h1>Collectors</h1>
        <p className="verdict-line">Those furthest behind come first.</p>
      </div>
      {query.data !== undefined && <Totals rows={rows} />}
      <Panel
        title="Collectors"
        sub={query.data === undefined ? "" : formatNumber(rows.length)}
        tools={<Broken query={query} />}
        className="children-panel"
      >
        <Answered query={query} waitsFor="the collectors" height={320}>
          {() =>
            rows.length === 0 ? (
              <Empty title="No collector has delivered yet" command="secondsight agent --config agent.toml">
                An agent on a GPU host appears here with its first frame.
              </Empty>
            ) : (
              <Table
                label="Collectors"
                rows={rows}
                columns={COLUMNS}
                keyOf={(row) => [row.tenantId, row.clusterId, row.collectorId].join("\n")}
                linkOf={(row) => (row.hostId === "" ? undefined : keepWindow(view, hostPath(row.hostId)))}
                sort={parseSort(view.params.get("sort"), FURTHEST_FIRST)}
                onSort={(sort) => view.set({ sort })}
                height={448}
                none="No collector is in scope."
              />
            )
          }
        </Answered>
      </Panel>
      <DebugPanel />
    </Page>
  );
}
