/** The ledger: produced = stored + shed + quarantined + dead letters + in flight, per collector and minute. */

import { useQuery } from "@tanstack/react-query";
import { ledgerQuery } from "../../api/custody";
import type { WireLedger } from "../../api/wire";
import { Tiles } from "../../ui/facts";
import { StatusWord } from "../../ui/icon";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatClock } from "../../ui/times";
import { countOf, formatNumber, formatValue } from "../../ui/units";
import type { View } from "../../ui/view";

const LIMIT = 2000;
const NEWEST_FIRST = { key: "minute", descending: true };
const SHOWN = [
  { value: "", label: "All minutes" },
  { value: "true", label: "Not in balance" },
];

type Entry = WireLedger["entries"][number];
type Reasons = Entry["shed"];

function sum(reasons: Reasons): number {
  return reasons.reduce((total, reason) => total + reason.rows, 0);
}

function minuteOf(entry: Entry): number {
  return Date.parse(entry.minute);
}

function rows(key: string, label: string, count: (entry: Entry) => number, wide = true): Column<Entry> {
  return {
    key,
    label,
    width: "88px",
    numeric: true,
    wide,
    cell: (entry) => formatNumber(count(entry)),
    sortBy: count,
  };
}

const COLUMNS: readonly Column<Entry>[] = [
  {
    key: "minute",
    label: "Minute",
    width: "72px",
    cell: (entry) => formatClock(minuteOf(entry)).slice(0, 5),
    sortBy: minuteOf,
  },
  {
    key: "collector",
    label: "Collector",
    width: "minmax(112px, 1.4fr)",
    cell: (entry) => entry.collectorId,
    sortBy: (entry) => entry.collectorId,
  },
  rows("produced", "Produced", (entry) => entry.produced.rows),
  rows("stored", "Stored", (entry) => entry.stored.rows, false),
  rows("merged", "Merged", (entry) => entry.merged.rows),
  rows("shed", "Shed", (entry) => sum(entry.shed)),
  rows("quarantined", "Quarantined", (entry) => sum(entry.quarantined)),
  rows("dead", "Dead letters", (entry) => sum(entry.deadLettered)),
  rows("flight", "In flight", (entry) => entry.inFlight.rows),
  {
    key: "balanced",
    label: "Balance",
    width: "116px",
    cell: (entry) =>
      entry.balanced ? (
        <StatusWord tone="ok" word="in balance" />
      ) : (
        <StatusWord tone="bad" word={`${formatNumber(entry.difference.rows)} rows off`} />
      ),
    sortBy: (entry) => Number(entry.balanced),
  },
];

function Totals({ ledger }: { ledger: WireLedger }) {
  const waitingBytes = ledger.waiting.reduce((total, each) => total + each.bytes, 0);
  const off = ledger.entries.filter((entry) => !entry.balanced).length;
  return (
    <Tiles
      label="Ledger in this window"
      tiles={[
        { name: "Minutes", value: formatNumber(ledger.total), than: "of collectors" },
        {
          name: "Not in balance",
          value: formatNumber(off),
          than: off === 0 ? "every row is accounted for" : "minutes of those shown",
        },
        {
          name: "Less than agents say",
          value: formatNumber(ledger.short.length),
          than: ledger.said === 0 ? "no agent said its minutes" : `of ${countOf(ledger.said, "minute")} said`,
        },
        {
          name: "Waiting in spools",
          value: formatValue(waitingBytes, "agent_spool_bytes", "By"),
          than: `on ${countOf(ledger.waiting.length, "host")}`,
        },
      ]}
    />
  );
}

export function LedgerPanel({ view }: { view: View }) {
  const unbalanced = view.params.get("unbalanced") ?? "";
  const query = useQuery(ledgerQuery({ unbalanced, window: view.window, limit: LIMIT }));
  return (
    <>
      {query.data !== undefined && <Totals ledger={query.data} />}
      <Panel
        title="Ledger"
        sub="tick rows"
        tools={
          <>
            <Broken query={query} />
            <Segment
              label="which minutes"
              choices={SHOWN}
              value={unbalanced}
              onChoose={(value) => view.set({ unbalanced: value })}
            />
          </>
        }
      >
        <Answered query={query} waitsFor="the ledger" height={320}>
          {({ entries }) => (
            <Table
              label="Ledger"
              rows={entries}
              columns={COLUMNS}
              keyOf={(entry) => [entry.tenantId, entry.clusterId, entry.collectorId, entry.minute].join("\n")}
              sort={parseSort(view.params.get("sort"), NEWEST_FIRST)}
              onSort={(sort) => view.set({ sort })}
              height="page"
              none={
                unbalanced === ""
                  ? "No collector told anything in this window."
                  : "Every minute of this window is in balance."
              }
            />
          )}
        </Answered>
      </Panel>
    </>
  );
}
