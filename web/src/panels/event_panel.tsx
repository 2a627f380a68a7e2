/** The newest events of some place; each leads to its second. */

import { useQuery } from "@tanstack/react-query";
import { type EventsRequest, eventsQuery, type Happening } from "../api/events";
import type { Gpu } from "../api/fleet";
import { fixedParams } from "../model/window";
import { Shape } from "../ui/icon";
import { Link } from "../ui/navigation";
import { Answered, Broken, Panel } from "../ui/panel";
import { formatClock } from "../ui/times";
import { countOf, formatNumber } from "../ui/units";
import { keepWindow, type View } from "../ui/view";
import { type Alike, groupAlike } from "./event_groups";
import { titleOf, toneOf } from "./event_words";
import { nameOf } from "./gpu_columns";
import { gpuPath } from "./ladder";

const AROUND_MS = 120_000;
const SHOWN = 5;

export interface EventPanelProps {
  title: string;
  asked: EventsRequest;
  view: View;
  names: ReadonlyMap<string, Gpu>;
  /** Parameters that the page of all events takes over from this place. */
  all: Record<string, string | undefined>;
  /** False while something is asked for that has to be seen first. */
  ready?: boolean;
}

/** Who an event befell, as short as can be told. */
export function whoOf(event: Happening, names: ReadonlyMap<string, Gpu>): string {
  const gpu = names.get(event.gpu);
  if (gpu !== undefined) return nameOf(gpu);
  return event.gpu === "" ? event.host || event.entity : `${event.host} · ${event.gpu.slice(0, 12)}`;
}

/** Address of the place of an event with the seconds around it. */
export function secondOf(event: Happening): string {
  const path = event.gpu === "" ? `/hosts/${encodeURIComponent(event.host)}` : gpuPath(event.gpu);
  const around = fixedParams(event.at - AROUND_MS, event.at + AROUND_MS);
  return `${path}?from=${around["from"]}&to=${around["to"]}`;
}

function Line({ alike, names }: { alike: Alike; names: EventPanelProps["names"] }) {
  const { event, gpus, count } = alike;
  const who = gpus > 1 ? `${event.host} · ${countOf(gpus, "GPU")}` : whoOf(event, names);
  return (
    <li>
      <Link to={secondOf(event)}>
        <time>{formatClock(event.at)}</time>
        <span className={`event-name ${toneOf(event)}`}>
          <Shape tone={toneOf(event)} />
          <span>{titleOf(event)}</span>
        </span>
        <span className="event-who">{who}</span>
        {count > gpus && <small title={`${count} times`}>×{formatNumber(count)}</small>}
      </Link>
    </li>
  );
}

export function EventPanel({ title, asked, view, names, all, ready = true }: EventPanelProps) {
  const query = useQuery({ ...eventsQuery(asked), enabled: ready });
  return (
    <Panel
      title={title}
      className="list-panel"
      tools={
        <>
          <Broken query={query} />
          <Link to={keepWindow(view, "/events", all)} className="link quiet">
            all {query.data === undefined ? "" : formatNumber(query.data.total)}
          </Link>
        </>
      }
    >
      <Answered query={query} waitsFor="events" height={112}>
        {({ events }) =>
          events.length === 0 ? (
            <p className="panel-note">Nothing happened in this window.</p>
          ) : (
            <ul className="event-list">
              {groupAlike(events)
                .slice(0, SHOWN)
                .map((alike) => (
                  <Line key={alike.event.key} alike={alike} names={names} />
                ))}
            </ul>
          )
        }
      </Answered>
    </Panel>
  );
}
