/** What happened, newest first: filtered by gravity, kind and place. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { addressOf } from "../../api/client";
import { eventsQuery, type Happening } from "../../api/events";
import type { Gpu } from "../../api/fleet";
import { secondOf, whoOf } from "../../panels/event_panel";
import { detailOf, titleOf, toneOf } from "../../panels/event_words";
import { healthOf } from "../../panels/health";
import { useNames } from "../../panels/names";
import { CopyAs, toCurl } from "../../ui/copy_as";
import { StatusWord } from "../../ui/icon";
import { Page } from "../../ui/page";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Picks } from "../../ui/picks";
import { Segment } from "../../ui/segment";
import { Table } from "../../ui/table";
import type { Column } from "../../ui/table_sort";
import { formatClock, formatDay, formatDuration } from "../../ui/times";
import { formatNumber } from "../../ui/units";
import { useView, type View } from "../../ui/view";

const LIMIT = 2000;
const STALE_MS = 30_000;
const UNSORTED = { key: "", descending: false };
const PLACES = ["cluster", "host", "gpu", "job", "model"] as const;

const GRAVITIES = [
  { value: "", label: "All" },
  { value: "info,warning,error,critical", label: "Info" },
  { value: "warning,error,critical", label: "Warning" },
  { value: "error,critical", label: "Error" },
  { value: "critical", label: "Critical" },
];

const KINDS = [
  { value: "", label: "Any kind" },
  { value: "gpu", label: "GPUs" },
  { value: "node", label: "Hosts" },
  { value: "fabric_port", label: "Fabric" },
  { value: "process_job", label: "Jobs" },
  { value: "training", label: "Training" },
  { value: "platform", label: "Platform" },
];

function lastingOf(event: Happening): string {
  if (event.end === null) return "lasts";
  return event.end > event.at ? formatDuration(event.end - event.at) : "";
}

function columnsOf(names: ReadonlyMap<string, Gpu>): Column<Happening>[] {
  return [
    {
      key: "time",
      label: "Time, UTC",
      width: "116px",
      narrow: 80,
      cell: (event) => `${formatDay(event.at)} ${formatClock(event.at)}`,
      sortBy: (event) => event.at,
    },
    {
      key: "what",
      label: "What",
      width: "minmax(132px, 1.8fr)",
      narrow: 140,
      cell: (event) => <StatusWord tone={toneOf(event)} word={titleOf(event)} />,
      sortBy: titleOf,
    },
    {
      key: "who",
      label: "Where",
      width: "minmax(120px, .8fr)",
      cell: (event) => whoOf(event, names),
      sortBy: (event) => whoOf(event, names),
    },
    { key: "lasts", label: "Lasting", width: "84px", wide: true, cell: lastingOf },
    { key: "severity", label: "Gravity", width: "64px", wide: true, cell: (event) => event.severity || "–" },
    {
      key: "detail",
      label: "Told",
      width: "minmax(160px, 2fr)",
      wide: true,
      cell: (event) => <span title={detailOf(event)}>{detailOf(event)}</span>,
    },
  ];
}

function filtersOf(view: View): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of [...PLACES, "metric", "kind", "severity"]) {
    const value = view.params.get(name);
    if (value !== null) found[name] = value;
  }
  return found;
}

export function EventsPage() {
  const view = useView("1h");
  const filters = filtersOf(view);
  const query = useQuery(eventsQuery({ ...filters, window: view.window, limit: LIMIT }));
  const names = useNames();
  const columns = useMemo(() => columnsOf(names), [names]);
  const address = () =>
    addressOf("/v1/events", {
      ...filters,
      from: new Date(view.span.from).toISOString(),
      to: new Date(view.span.to).toISOString(),
    });
  return (
    <Page title="Events" view={view} health={healthOf(query.data?.meta, view.now, STALE_MS)} up="/">
      <div className="say">
        <h1>Events</h1>
        <p className="verdict-line">A row leads to its place with the seconds around it.</p>
      </div>
      <Panel
        title="Events"
        sub={query.data === undefined ? "" : formatNumber(query.data.total)}
        tools={
          <>
            <Broken query={query} />
            <CopyAs forms={[{ name: "curl, JSON", text: () => toCurl(address()) }]} />
          </>
        }
      >
        <div className="filters">
          <Segment
            label="gravity, at least"
            choices={GRAVITIES}
            value={filters["severity"] ?? ""}
            onChoose={(severity) => view.set({ severity })}
          />
          <Segment
            label="kind"
            choices={KINDS}
            value={filters["kind"] ?? ""}
            onChoose={(kind) => view.set({ kind })}
          />
          <Picks
            picks={[...PLACES, "metric"].flatMap((name) =>
              name in filters ? [{ name, value: filters[name] ?? "" }] : [],
            )}
            onDrop={(name) => view.set({ [name]: undefined })}
          />
        </div>
        <Answered query={query} waitsFor="events" height={320}>
          {({ events, total }) => (
            <>
              <Table
                label="Events"
                rows={events}
                columns={columns}
                keyOf={(event) => event.key}
                linkOf={(event) => (event.host === "" ? undefined : secondOf(event))}
                sort={UNSORTED}
                height="page"
                none="Nothing of this kind happened in this window. A wider range, or fewer filters, may show more."
              />
              {total > events.length && (
                <p className="panel-note">
                  The newest {formatNumber(events.length)} of {formatNumber(total)}; a narrower window shows
                  the rest.
                </p>
              )}
            </>
          )}
        </Answered>
      </Panel>
    </Page>
  );
}
