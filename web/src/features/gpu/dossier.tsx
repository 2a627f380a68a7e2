/** What is known of a card beside its samples: its owner now, its errors, its jobs, its software. */

import { useQuery } from "@tanstack/react-query";
import { eventsQuery, factsQuery, type Happening } from "../../api/events";
import { type Catalog, type Gpu, unitOf } from "../../api/fleet";
import { type Grouped, groupedQuery } from "../../api/grouped";
import type { Window } from "../../model/window";
import { titleOf, toneOf } from "../../panels/event_words";
import { Pairs } from "../../ui/facts";
import { Shape } from "../../ui/icon";
import { Link } from "../../ui/navigation";
import { Answered, Panel } from "../../ui/panel";
import { formatAge, formatClock, formatDay, formatMoment } from "../../ui/times";
import { formatValue } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";

const DAYS_MS = 30 * 86_400_000;
const PAST: Window = { live: true, lengthMs: DAYS_MS };

/** Counters of errors, in the order of the dossier; what is not reported is left out. */
const COUNTERS: readonly (readonly [metric: string, name: string])[] = [
  ["gpu_ecc_uncorrected_volatile_total", "ECC uncorrected"],
  ["gpu_ecc_corrected_volatile_total", "ECC corrected"],
  ["gpu_rows_remapped_uncorrectable_total", "Rows remapped"],
  ["gpu_pcie_replay_total", "PCIe replay"],
  ["gpu_nvlink_replay_errors_total", "NVLink replay"],
  ["gpu_nvlink_crc_errors_total", "NVLink CRC"],
];

/** A card that says nothing may well be held by a job. */
function noJob(gpu: Gpu | undefined): string {
  if (gpu === undefined) return "–";
  return gpu.status === "reporting" ? "none" : "not told now";
}

function Now({ gpu, view }: { gpu: Gpu | undefined; view: View }) {
  const job = gpu?.job ?? "";
  const model = gpu?.model ?? "";
  return (
    <Panel title="Now">
      <Pairs
        pairs={[
          {
            name: "Job",
            value:
              job === "" ? (
                noJob(gpu)
              ) : (
                <Link to={keepWindow(view, `/jobs/${encodeURIComponent(job)}`)} className="link">
                  {job}
                </Link>
              ),
          },
          {
            name: "Model",
            value:
              model === "" ? (
                "–"
              ) : (
                <Link to={keepWindow(view, `/models/${encodeURIComponent(model)}`)} className="link">
                  {model}
                </Link>
              ),
          },
          { name: "Team", value: gpu?.team || "–" },
        ]}
      />
    </Panel>
  );
}

/** Increase of a counter over the window, over all its parts; null where nothing was told. */
function increaseOf(found: Grouped, metric: string): number | null {
  const told = found.series
    .filter((series) => series.metric === metric)
    .flatMap((series) => found.columns.values[series.column] ?? [])
    .filter((value): value is number => value !== null);
  return told.length === 0 ? null : told.reduce((sum, value) => sum + value, 0);
}

function Errors({ id, catalog }: { id: string; catalog: Catalog | undefined }) {
  const metrics = COUNTERS.map(([metric]) => metric).filter((metric) => catalog?.has(metric) ?? false);
  const counters = useQuery({
    ...groupedQuery({
      metrics,
      aggregate: "increase",
      filters: { gpu: id },
      groupBy: "",
      window: { live: true, lengthMs: 86_400_000 },
      resolution: "range",
      limit: 200,
    }),
    enabled: metrics.length > 0,
  });
  const xids = useQuery(eventsQuery({ gpu: id, metric: "gpu_xid", window: PAST, limit: 5 }));
  const xid = { name: "Xid", value: xids.data?.total ?? "–" };
  return (
    <Panel title="Error dossier" sub="24 h, Xid 30 d">
      {catalog !== undefined && metrics.length === 0 ? (
        <Pairs pairs={[xid]} />
      ) : (
        <Answered query={counters} waitsFor="the counters of errors" height={120}>
          {(found) => (
            <Pairs
              pairs={[
                xid,
                ...COUNTERS.flatMap(([metric, name]) => {
                  const value = increaseOf(found, metric);
                  return value === null
                    ? []
                    : [{ name, value: formatValue(value, metric, unitOf(catalog, metric)) }];
                }),
              ]}
            />
          )}
        </Answered>
      )}
    </Panel>
  );
}

function EventLine({ event, view }: { event: Happening; view: View }) {
  return (
    <li>
      <button type="button" onClick={() => view.actions.zoom([event.at - 30_000, event.at + 30_000])}>
        <time>{formatMoment(event.at, view.now)}</time>
        <span className={`event-name ${toneOf(event)}`}>
          <Shape tone={toneOf(event)} />
          <span>{titleOf(event)}</span>
        </span>
      </button>
    </li>
  );
}

function Findings({ id, view }: { id: string; view: View }) {
  const found = useQuery(
    eventsQuery({ gpu: id, severity: "warning,error,critical", window: PAST, limit: 6 }),
  );
  return (
    <Panel title="Newest findings" sub="30 d">
      <Answered query={found} waitsFor="findings" height={80}>
        {({ events }) =>
          events.length === 0 ? (
            <p className="panel-note">Nothing was found wrong with this card.</p>
          ) : (
            <ul className="event-list">
              {events.map((event) => (
                <EventLine key={event.key} event={event} view={view} />
              ))}
            </ul>
          )
        }
      </Answered>
    </Panel>
  );
}

function Jobs({ id, view }: { id: string; view: View }) {
  const found = useQuery(eventsQuery({ gpu: id, metric: "job_gpu_allocation", window: PAST, limit: 6 }));
  const jobs = found.data?.events ?? [];
  if (jobs.length === 0) return null;
  return (
    <Panel title="Jobs on this card">
      <ul className="event-list">
        {jobs.map((event) => (
          <li key={event.key}>
            <Link to={keepWindow(view, `/jobs/${encodeURIComponent(event.job)}`)} className="link">
              {event.job || "–"}
            </Link>
            <time>{`${formatDay(event.at)} ${formatClock(event.at).slice(0, 5)}`}</time>
            <b>
              {event.end === null
                ? `${formatAge(view.now - event.at)} so far`
                : formatAge(event.end - event.at)}
            </b>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Card({ id }: { id: string }) {
  const facts = useQuery(factsQuery({ gpu: id, metric: "gpu_info", limit: 1 }));
  const [fact] = facts.data ?? [];
  if (fact === undefined) return null;
  const pairs = Object.entries(fact.attributes).map(([name, value]) => ({ name, value }));
  return (
    <Panel title="Card">
      <Pairs pairs={[...pairs, { name: "since", value: `${formatDay(fact.at)} ${formatClock(fact.at)}` }]} />
    </Panel>
  );
}

export interface DossierProps {
  gpu: Gpu | undefined;
  id: string;
  view: View;
  catalog: Catalog | undefined;
}

export function Dossier({ gpu, id, view, catalog }: DossierProps) {
  return (
    <>
      <Now gpu={gpu} view={view} />
      <Errors id={id} catalog={catalog} />
      <Findings id={id} view={view} />
      <Jobs id={id} view={view} />
      <Card id={id} />
    </>
  );
}
