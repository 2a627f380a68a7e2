/** The GPUs of the same host side by side, as a strip of heat; each leads to its page. */

import { useQuery } from "@tanstack/react-query";
import { type Catalog, type Gpu, hostQuery, unitOf } from "../../api/fleet";
import { Link, type Place, withParams } from "../../ui/navigation";
import { formatValue } from "../../ui/units";

const TEMPERATURE = "gpu_temperature_celsius";
/** Where the eight steps of heat begin: ordinary values stay quiet, the last 20 degrees have hue. */
const STEPS_CELSIUS = [30, 42, 54, 66, 73, 78, 83, 88];

/** Step of the heat scale, 0 to 7; null where the value is missing. */
export function heatStep(celsius: number | null | undefined): number | null {
  if (celsius === null || celsius === undefined) return null;
  return Math.max(0, STEPS_CELSIUS.filter((start) => celsius >= start).length - 1);
}

/** GPUs before and after this one on its host, going round at the ends. */
export function siblings(peers: readonly Gpu[], id: string): { before: Gpu; after: Gpu } | null {
  const at = peers.findIndex((gpu) => gpu.id === id);
  const before = peers.at(at - 1);
  const after = peers[(at + 1) % peers.length];
  if (at < 0 || peers.length < 2 || before === undefined || after === undefined) return null;
  return { before, after };
}

/** Address of the same view of another GPU. */
export function pathOf(gpu: Gpu, place: Place): string {
  return withParams({ path: `/gpus/${encodeURIComponent(gpu.id)}`, search: place.search }, {});
}

export function usePeers(host: string | undefined): readonly Gpu[] {
  return useQuery(hostQuery(host ?? "")).data ?? [];
}

interface PeerProps {
  gpu: Gpu;
  isThis: boolean;
  place: Place;
  catalog: Catalog | undefined;
}

function Peer({ gpu, isThis, place, catalog }: PeerProps) {
  const celsius = gpu.status === "reporting" ? gpu.values[TEMPERATURE] : null;
  const step = heatStep(celsius);
  const [figure, unit = ""] = formatValue(celsius, TEMPERATURE, unitOf(catalog, TEMPERATURE)).split("\u00a0");
  return (
    <Link
      to={pathOf(gpu, place)}
      className={step === null ? "peer absent" : `peer heat-${step}`}
      current={isThis}
    >
      <b>{figure}</b>
      <span className="hidden">{unit}, GPU</span>
      <span>{gpu.index ?? "·"}</span>
    </Link>
  );
}

export interface PeersProps {
  peers: readonly Gpu[];
  id: string;
  place: Place;
  catalog: Catalog | undefined;
}

export function Peers({ peers, id, place, catalog }: PeersProps) {
  if (peers.length < 2) return null;
  return (
    <nav className="peers" aria-label="GPUs of this host by temperature">
      <span className="peers-name">On this host, °C</span>
      {peers.map((gpu) => (
        <Peer key={gpu.id} gpu={gpu} isThis={gpu.id === id} place={place} catalog={catalog} />
      ))}
    </nav>
  );
}
