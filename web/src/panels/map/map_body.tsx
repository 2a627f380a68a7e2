/** The cells of some place and what belongs to the one under the cursor. */

import { useMemo, useState } from "react";
import { type Catalog, type Gpu, unitOf } from "../../api/fleet";
import type { ByteFrame, MapCell } from "../../api/map";
import { useWidth } from "../../chart/time_axis";
import { useNarrow } from "../../ui/narrow";
import { navigate } from "../../ui/navigation";
import { useSteady } from "../../ui/steady";
import { formatNumber, formatValue } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";
import type { Lasting } from "../findings";
import { gpuPath } from "../ladder";
import { toneOf } from "../status";
import {
  BY_SAMPLES,
  type Cells,
  codeOf,
  countTones,
  FOUND,
  type MapMetric,
  toCells,
  toneAt,
  valueAt,
} from "./cells";
import { layoutMap, type MapLayout } from "./layout";
import { MapCanvas } from "./map_canvas";
import { MapCard, sayPlace } from "./map_card";
import { ClusterHeads, RackHeads, Selection } from "./map_heads";
import { zoomedOut, zoomedTo } from "./zoom";

const HEIGHT_PX = 288;
const NARROW_HEIGHT_PX = 4000;

export interface MapBodyProps {
  places: readonly MapCell[];
  /** One byte a place. */
  frame: ByteFrame;
  shown: MapMetric;
  catalog: Catalog | undefined;
  view: View;
  at: number | null;
  lasting: Lasting;
  /** GPUs as they are now, by id; undefined until they are known. */
  gpus: ReadonlyMap<string, Gpu> | undefined;
}

/** How each cell stands: as the list of GPUs says now, or as samples and findings say of a second of the past. */
function useCells({ places, frame, shown, at, lasting, gpus }: MapBodyProps): Cells {
  const isPast = at !== null;
  const standing = useMemo(() => {
    const codes = new Uint8Array(places.length);
    places.forEach((place, index) => {
      const gpu = isPast ? undefined : gpus?.get(place.id);
      const told = lasting.has(place.id) ? FOUND : BY_SAMPLES;
      codes[index] = gpu === undefined ? told : codeOf(toneOf(gpu.health.verdict));
    });
    return codes;
  }, [places, isPast, lasting, gpus]);
  return useMemo(() => toCells(frame, standing, shown), [frame, standing, shown]);
}

function useLayout(places: readonly MapCell[], width: number): MapLayout {
  const narrow = useNarrow();
  return useMemo(
    () => layoutMap(places, width, narrow ? NARROW_HEIGHT_PX : HEIGHT_PX, narrow),
    [places, width, narrow],
  );
}

interface CardProps extends MapBodyProps {
  index: number;
  cells: Cells;
  layout: MapLayout;
  width: number;
}

function Card({ index, cells, layout, width, places, shown, gpus, catalog, at }: CardProps) {
  const place = places[index];
  if (place === undefined) return null;
  const gpu = gpus?.get(place.id);
  const metric = shown.metric;
  const shownValue = { [metric]: valueAt(cells, index) };
  return (
    <MapCard
      place={place}
      gpu={gpu}
      tone={toneAt(cells, index)}
      catalog={catalog}
      values={at === null ? { ...gpu?.values, ...shownValue } : shownValue}
      beside={{
        x: (layout.xs[index] ?? 0) + layout.cellWidth,
        y: layout.ys[index] ?? 0,
        flip: (layout.xs[index] ?? 0) > width / 2,
      }}
    />
  );
}

export function MapBody(props: MapBodyProps) {
  const { places, shown, catalog, view, at } = props;
  const { host, width } = useWidth();
  const [cursor, setCursor] = useState<number | null>(null);
  const [spoken, setSpoken] = useState("");
  const [selected, setSelected] = useState<ReadonlySet<number>>(new Set());
  const cells = useCells(props);
  const layout = useLayout(places, width);
  const { metric } = shown;
  const unit = unitOf(catalog, metric);
  const say = (value: number | null) => (shown.key === "health" ? "" : formatValue(value, metric, unit));
  const painting = useMemo(
    () => ({
      layout,
      cells,
      shown,
      label: (value: number) => formatValue(value, metric, unit).split("\u00a0")[0] ?? "",
    }),
    [layout, cells, shown, metric, unit],
  );
  const open = (index: number) => {
    const place = places[index];
    if (place !== undefined) navigate(keepWindow(view, gpuPath(place.id)));
  };
  const move = (index: number | null, by: "pointer" | "keys") => {
    setCursor(index);
    const place = index === null ? undefined : places[index];
    if (by === "keys" && place !== undefined && index !== null) {
      setSpoken(sayPlace(place, toneAt(cells, index), say(valueAt(cells, index))));
    }
  };
  const zoom = useSteady((cluster: string) => view.set({ zoom: cluster }));
  const key = (pressed: string) => {
    const place = cursor === null ? undefined : places[cursor];
    if (pressed === "+" && place !== undefined) view.set({ zoom: zoomedTo(view, place) });
    else if (pressed === "-") view.set({ zoom: zoomedOut(view) });
    else return false;
    return true;
  };
  const counts = countTones(cells, places.keys());
  const told = `Map of ${formatNumber(places.length)} GPUs by ${shown.label.toLowerCase()}: ${counts.bad} unavailable, ${counts.warn} degraded. Arrows walk the cells, Enter opens one.`;
  return (
    <div ref={host} className="map" data-at={at ?? ""}>
      {width > 0 && (
        <>
          <ClusterHeads layout={layout} places={places} cells={cells} say={say} onZoom={zoom} />
          <RackHeads layout={layout} />
          <MapCanvas
            painting={painting}
            label={told}
            cursor={cursor}
            onCursor={move}
            selected={selected}
            onSelect={setSelected}
            onOpen={open}
            onKey={key}
          />
          {cursor !== null && <Card {...props} index={cursor} cells={cells} layout={layout} width={width} />}
        </>
      )}
      <p className="hidden" aria-live="polite">
        {spoken}
      </p>
      <Selection
        places={[...selected].flatMap((index) => places[index] ?? [])}
        view={view}
        onClear={() => setSelected(new Set())}
      />
    </div>
  );
}
