/** The map of GPUs: coloured by health or a metric, walked by pointer and keys, scrubbed through the window. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { catalogQuery, type Gpu } from "../../api/fleet";
import { type Frame, frameQuery, type MapCell } from "../../api/map";
import { Icon } from "../../ui/icon";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Empty } from "../../ui/states";
import { formatClock } from "../../ui/times";
import type { View } from "../../ui/view";
import type { Lasting } from "../findings";
import { MAP_METRICS, mapMetric } from "./cells";
import { MapBody } from "./map_body";
import { Legend } from "./map_heads";
import { isInZoom, zoomedOut } from "./zoom";
import "./map.css";

const HEIGHT_PX = 288;

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
  children?: ReactNode;
}

/** The places that are shown and their values; the same places for as long as the same GPUs are there. */
function useShown(frame: Frame | undefined, zoom: string, only: MapPanelProps["only"]) {
  const cells = frame?.cells;
  const kept = useMemo(() => {
    const indexes: number[] = [];
    cells?.forEach((place, index) => {
      if (isInZoom(place, zoom) && only?.(place) !== false) indexes.push(index);
    });
    return { indexes, places: indexes.flatMap((index) => cells?.[index] ?? []) };
  }, [cells, zoom, only]);
  const values = useMemo(() => kept.indexes.map((index) => frame?.values[index] ?? null), [kept, frame]);
  return { places: kept.places, values };
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

export function MapPanel(props: MapPanelProps) {
  const { cluster, view, at, only, children } = props;
  const shown = mapMetric(view.params.get("by"));
  const zoom = view.params.get("zoom") ?? "";
  const query = useQuery(frameQuery({ metric: shown.metric, at, cluster }));
  const { data: catalog } = useQuery(catalogQuery);
  const { places, values } = useShown(query.data, zoom, only);
  return (
    <Panel
      title="Map"
      className="map-panel"
      sub={
        <>
          at <b>{query.data === undefined ? "–" : formatClock(at ?? query.data.at)}</b>
        </>
      }
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
      <Answered query={query} waitsFor="the map" height={HEIGHT_PX}>
        {() =>
          places.length === 0 ? (
            <Empty title="No GPU here yet" command="secondsight up --simulate 200x8">
              An agent on a GPU host, or a simulated fleet, fills this map within seconds.
            </Empty>
          ) : (
            <MapBody key={zoom} {...props} places={places} values={values} shown={shown} catalog={catalog} />
          )
        }
      </Answered>
      {children}
    </Panel>
  );
}
