/** Debug sessions: what is sampled every second for a while, and what is left of the budget. */

import { queryOptions, useQuery } from "@tanstack/react-query";
import { request } from "../../api/client";
import type { WireDebug } from "../../api/wire";
import { StatusWord } from "../../ui/icon";
import { Answered, Panel } from "../../ui/panel";
import { Table } from "../../ui/table";
import type { Column } from "../../ui/table_sort";
import { formatClock, formatDay } from "../../ui/times";
import { formatNumber } from "../../ui/units";

const EVERY_MS = 15_000;
const NEWEST_FIRST = { key: "start", descending: true };

type Session = WireDebug["sessions"][number];

const debugQuery = queryOptions({
  queryKey: ["debug"],
  queryFn: ({ signal }) => request<WireDebug>("/v1/debug", { signal }),
  refetchInterval: EVERY_MS,
});

const COLUMNS: readonly Column<Session>[] = [
  {
    key: "target",
    label: "Target",
    width: "minmax(128px, 1.5fr)",
    cell: (session) => `${session.targetKind} ${session.target}`,
    sortBy: (session) => session.target,
  },
  {
    key: "cluster",
    label: "Cluster",
    width: "minmax(72px, .8fr)",
    wide: true,
    cell: (session) => session.clusterId,
  },
  {
    key: "start",
    label: "From, UTC",
    width: "124px",
    wide: true,
    cell: (session) => `${formatDay(Date.parse(session.start))} ${formatClock(Date.parse(session.start))}`,
    sortBy: (session) => Date.parse(session.start),
  },
  {
    key: "until",
    label: "Until",
    width: "80px",
    cell: (session) => formatClock(Date.parse(session.until)),
    sortBy: (session) => Date.parse(session.until),
  },
  {
    key: "rate",
    label: "Values/s",
    width: "80px",
    numeric: true,
    wide: true,
    cell: (session) => formatNumber(session.valuesPerSecond),
    sortBy: (session) => session.valuesPerSecond,
  },
  {
    key: "by",
    label: "Started by",
    width: "minmax(80px, 1fr)",
    wide: true,
    cell: (session) => session.startedBy,
  },
  {
    key: "state",
    label: "State",
    width: "88px",
    cell: (session) => (
      <StatusWord tone={session.active ? "ok" : "none"} word={session.active ? "runs" : "ended"} />
    ),
  },
];

export function DebugPanel() {
  const query = useQuery(debugQuery);
  const budget = query.data;
  return (
    <Panel
      title="Debug sessions"
      sub={
        budget === undefined
          ? ""
          : `${formatNumber(budget.freeValuesPerSecond)} of ${formatNumber(budget.budgetValuesPerSecond)} values a second are free`
      }
    >
      <Answered query={query} waitsFor="debug sessions" height={80}>
        {({ sessions }) => (
          <Table
            label="Debug sessions"
            rows={sessions}
            columns={COLUMNS}
            keyOf={(session) => session.sessionId}
            sort={NEWEST_FIRST}
            height={280}
            none="No session in the last day. “secondsight debug” takes every second of a host or a job for a while."
          />
        )}
      </Answered>
    </Panel>
  );
}
