/** What stands around the cells of a map: its legend, the names of clusters and racks, what is selected. */

import { useMemo } from "react";
import type { MapCell } from "../../api/map";
import { Shape } from "../../ui/icon";
import { navigate } from "../../ui/navigation";
import { formatNumber } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";
import { type Cells, countTones, type MapMetric, valueAt } from "./cells";
import type { ClusterArea, MapLayout } from "./layout";
import { wordOfTone } from "./map_card";

const COMPARE_MAXIMUM = 50;

export function Legend({ shown }: { shown: MapMetric }) {
  if (shown.key === "health") {
    return (
      <span className="legend">
        <i className="cell healthy" /> healthy <i className="cell degraded" /> degraded{" "}
        <i className="cell hollow" /> unavailable <i className="cell dash" /> unknown
      </span>
    );
  }
  return (
    <span className="legend">
      {shown.ends[0]}
      <span className="scale" aria-hidden="true">
        {Array.from({ length: 8 }, (_, step) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: steps of a scale
          <i key={step} style={{ background: `var(--${shown.scale}${step})` }} />
        ))}
      </span>
      {shown.ends[1]} <i className="cell hatched" /> no data <i className="cell hollow" /> unavailable
    </span>
  );
}

interface HeadProps {
  area: ClusterArea;
  counts: ReturnType<typeof countTones>;
  mean: string;
  onZoom: () => void;
}

function ClusterHead({ area, counts, mean, onZoom }: HeadProps) {
  return (
    <button
      type="button"
      className="map-cluster"
      style={{ left: area.x, top: area.y, maxWidth: Math.max(area.width, 120) }}
      onClick={onZoom}
      title={`Zoom to ${area.cluster}`}
    >
      <span>
        <b>{area.cluster}</b> {formatNumber(area.gpus)}
        {mean !== "" && ` · ${mean}`}
      </span>
      {(["warn", "bad", "none"] as const)
        .filter((tone) => counts[tone] > 0)
        .map((tone) => (
          <span key={tone} className={`status ${tone}`} title={wordOfTone(tone)}>
            <Shape tone={tone} />
            {counts[tone]}
            <span className="hidden"> {wordOfTone(tone)}</span>
          </span>
        ))}
    </button>
  );
}

function meanOf(cells: Cells, members: readonly number[]): number | null {
  let [sum, count] = [0, 0];
  for (const at of members) {
    const value = valueAt(cells, at);
    if (value === null) continue;
    sum += value;
    count += 1;
  }
  return count === 0 ? null : sum / count;
}

export interface ClusterHeadsProps {
  layout: MapLayout;
  places: readonly MapCell[];
  cells: Cells;
  say: (value: number | null) => string;
  onZoom: (cluster: string) => void;
}

export function ClusterHeads({ layout, places, cells, say, onZoom }: ClusterHeadsProps) {
  const byCluster = useMemo(() => {
    const members = new Map<string, number[]>();
    places.forEach((place, at) => {
      const known = members.get(place.cluster);
      if (known === undefined) members.set(place.cluster, [at]);
      else known.push(at);
    });
    return members;
  }, [places]);
  return layout.clusters.map((area) => {
    const members = byCluster.get(area.cluster) ?? [];
    const mean = meanOf(cells, members);
    return (
      <ClusterHead
        key={area.cluster}
        area={area}
        counts={countTones(cells, members)}
        mean={mean === null ? "" : say(mean)}
        onZoom={() => onZoom(area.cluster)}
      />
    );
  });
}

export function RackHeads({ layout }: { layout: MapLayout }) {
  if (!layout.labelled) return null;
  return layout.racks.map((rack) => (
    <span key={`${rack.cluster} ${rack.rack}`} className="map-rack" style={{ left: rack.x, top: rack.y }}>
      {rack.rack}
    </span>
  ));
}

export interface SelectionProps {
  places: readonly MapCell[];
  view: View;
  onClear: () => void;
}

export function Selection({ places, view, onClear }: SelectionProps) {
  if (places.length === 0) return null;
  const compare = () => {
    const gpu = places
      .slice(0, COMPARE_MAXIMUM)
      .map((place) => place.id)
      .join(",");
    navigate(keepWindow(view, "/explore", { gpu, groupBy: "gpu", metrics: "gpu_utilization_ratio" }));
  };
  return (
    <div className="map-selection" role="status">
      <b>{places.length}</b> selected
      {places.length > COMPARE_MAXIMUM && `, the first ${COMPARE_MAXIMUM} are compared`}
      <button type="button" className="control small" onClick={compare}>
        Compare
      </button>
      <button type="button" className="control small" onClick={onClear}>
        Clear
      </button>
    </div>
  );
}
