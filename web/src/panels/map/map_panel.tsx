/** The map of GPUs: coloured by health or a metric, walked by pointer and keys, scrubbed through the window. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { catalogQuery, type Gpu } from "../../api/fleet";
import { type ByteFrame, behindNow, type Frame, frameQuery, type MapCell } from "../../api/map";
import { afterFrame } from "../../chart/frame";
import { isStreaming, useLive } from "../../live/streams";
import { Icon } from "../../ui/icon";
import { useNow } from "../../ui/now";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Empty } from "../../ui/states";
import { formatClock, formatDuration } from "../../ui/times";
import type { View } from "../../ui/view";
import type { Lasting } from "../findings";
import { MAP_METRICS, mapMetric } from "./cells";
import { MapBody } from "./map_body";
import { Legend } from "./map_heads";
import { isInZoom, zoomedOut } from "./zoom";
import "./map.css";

const HEIGHT_PX = 288;
/** The newest second is a few behind the present; more is worth a word. */
const LAGS_MS = 6000;
const NO_FRAME: ByteFrame = { bytes: new Uint8Array(0), low: 0, high: 1 };

export interface MapPanelProps {
  /** Empty for the whole fleet. */
  cluster: string;
  view: View;
  /** The second of the past that is shown; null for the newest. */
  at: number | null;
  lasting: Lasting;
  gpus: ReadonlyMap<string, Gpu> | undefined;
  /** Cells that belong here; all of the cluster where it is left out. */
  only?: (place: MapCell) => boolean;
  /** Told once the first map is on the screen, or will not come. */
  onFirst?: () => void;
  children?: ReactNode;
}

/** The places that are shown and their bytes; the same places for as long as the same GPUs are there. */
function useShown(frame: Frame | undefined, zoom: string, only: MapPanelProps["only"]) {
  const cells = frame?.cells;
  const kept = useMemo(() => {
    if (cells === undefined || (zoom === "" && only === undefined)) return { places: cells ?? [] };
    const indexes: number[] = [];
    cells.forEach((place, index) => {
      if (isInZoom(place, zoom) && only?.(place) !== false) indexes.push(index);
    });
    return { indexes, places: indexes.flatMap((index) => cells[index] ?? []) };
  }, [cells, zoom, only]);
  const shown = useMemo<ByteFrame>(() => {
    if (frame === undefined) return NO_FRAME;
    const { indexes } = kept;
    if (indexes === undefined) return frame;
    return { ...frame, bytes: Uint8Array.from(indexes, (index) => frame.bytes[index] ?? 0) };
  }, [kept, frame]);
  return { places: kept.places, frame: shown };
}

/** The second to ask for: the one pointed at, but one after another, so that fast scrubbing asks no more than is shown. */
function useAsked(at: number | null) {
  const [kept, setKept] = useState(at);
  const asked = at === null || kept === null ? at : kept;
  const settle = (isWaiting: boolean) => {
    if (kept !== at && (kept === null || at === null || !isWaiting)) setKept(at);
  };
  return { asked, settle };
}

/** The newest second from the stream while there is one, else from asking; a second of the past from asking. */
function useFrame(metric: string, at: number | null, cluster: string) {
  const { asked, settle } = useAsked(at);
  const [known, setKnown] = useState(false);
  const live = useLive(cluster, known);
  const streamed = live.board?.frames.get(metric);
  const follows = at === null && streamed !== undefined && isStreaming(live);
  const query = useQuery({ ...frameQuery({ metric, at: asked, cluster }), enabled: !follows });
  const { isFetched, isFetching, isPlaceholderData, data } = query;
  useEffect(() => settle(isFetching));
  useEffect(() => {
    if (isFetched) setKnown(true);
  }, [isFetched]);
  const newest = useMemo<Frame | undefined>(() => {
    const { board } = live;
    if (board === null || streamed === undefined) return data;
    if (data !== undefined && !follows && data.at > board.at) return data;
    return { ...streamed, cells: board.cells, at: board.at, lag: board.lag };
  }, [data, live, streamed, follows]);
  const last = useRef<{ metric: string; frame: Frame | undefined }>({ metric, frame: undefined });
  const kept = last.current.metric === metric ? last.current.frame : undefined;
  // Until the second pointed at comes, what was there stays.
  const frame = at === null ? newest : isPlaceholderData ? (kept ?? data) : data;
  useEffect(() => {
    last.current = { metric, frame };
  });
  return { query, frame, isFetched };
}

function ZoomedIn({ view }: { view: View }) {
  const zoom = view.params.get("zoom");
  if (zoom === null) return null;
  return (
    <button type="button" className="control small" onClick={() => view.set({ zoom: zoomedOut(view) })}>
      <Icon name="close" size={12} />
      only {zoom.replace("/", " › ")}
    </button>
  );
}

/** Which second is shown; the newest one says how far behind it is where that is more than a moment. */
function Shown({ at, found }: { at: number | null; found: Frame | undefined }) {
  const now = useNow();
  if (found === undefined) return <>at –</>;
  const behindMs = at === null ? behindNow(found.lag, now) : 0;
  const clock = <b>{formatClock(at ?? found.at)}</b>;
  if (behindMs < LAGS_MS) return <>at {clock}</>;
  const seconds = Math.round(behindMs / 1000);
  return (
    <span className="map-behind" title="The newest second that most hosts have told; samples come late">
      as of {clock}, {seconds < 60 ? `${seconds} s` : formatDuration(behindMs)} behind
    </span>
  );
}

export function MapPanel(props: MapPanelProps) {
  const { cluster, view, at, only, onFirst, children } = props;
  const shown = mapMetric(view.params.get("by"));
  const zoom = view.params.get("zoom") ?? "";
  const { query, frame: found, isFetched } = useFrame(shown.metric, at, cluster);
  const { data: catalog } = useQuery(catalogQuery);
  const { places, frame } = useShown(found, zoom, only);
  useEffect(
    () => (isFetched && onFirst !== undefined ? afterFrame(onFirst) : undefined),
    [isFetched, onFirst],
  );
  return (
    <Panel
      title="Map"
      className="map-panel"
      sub={<Shown at={at} found={found} />}
      tools={
        <>
          <ZoomedIn view={view} />
          <Broken query={query} />
          <Legend shown={shown} />
          <Segment
            label="colour by"
            choices={MAP_METRICS.map(({ key, label }) => ({ value: key, label }))}
            value={shown.key}
            onChoose={(by) => view.set({ by })}
          />
        </>
      }
    >
      <Answered query={{ ...query, data: found }} waitsFor="the map" height={HEIGHT_PX}>
        {() =>
          places.length === 0 ? (
            <Empty title="No GPU here yet" command="secondsight up --simulate 200x8">
              An agent on a GPU host, or a simulated fleet, fills this map within seconds.
            </Empty>
          ) : (
            <MapBody key={zoom} {...props} places={places} frame={frame} shown={shown} catalog={catalog} />
          )
        }
      </Answered>
      {children}
    </Panel>
  );
}
