/** How far a map is zoomed in, as the address says it: all, one cluster, one rack of it. */

import type { MapCell } from "../../api/map";
import type { View } from "../../ui/view";

type Params = Pick<View, "params">;

/** One level further in: the cluster of a GPU, then its rack. */
export function zoomedTo({ params }: Params, place: MapCell): string {
  const zoom = params.get("zoom") ?? "";
  return zoom.split("/")[0] === place.cluster && place.rack !== ""
    ? `${place.cluster}/${place.rack}`
    : place.cluster;
}

/** One level out; undefined for all. */
export function zoomedOut({ params }: Params): string | undefined {
  const zoom = params.get("zoom") ?? "";
  return zoom.includes("/") ? zoom.slice(0, zoom.indexOf("/")) : undefined;
}

export function isInZoom(place: MapCell, zoom: string): boolean {
  const [cluster = "", rack] = zoom.split("/");
  return (cluster === "" || place.cluster === cluster) && (rack === undefined || place.rack === rack);
}
