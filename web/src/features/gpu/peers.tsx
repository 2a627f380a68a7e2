/** The GPUs of the same host side by side, as a strip of heat; each leads to its page. */

import { useQuery } from "@tanstack/react-query";
import { type Catalog, type Gpu, hostQuery, unitOf } from "../../api/fleet";
import { heatStep } from "../../model/heat";
import { gpuPath } from "../../panels/ladder";
import { Link } from "../../ui/navigation";
import { formatValue } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";

const TEMPERATURE = "gpu_temperature_celsius";

export function usePeers(host: string | undefined): readonly Gpu[] {
  return useQuery(hostQuery(host ?? "")).data ?? [];
}

interface PeerProps {
  gpu: Gpu;
  isThis: boolean;
  view: View;
  catalog: Catalog | undefined;
}

function Peer({ gpu, isThis, view, catalog }: PeerProps) {
  const celsius = gpu.status === "reporting" ? gpu.values[TEMPERATURE] : null;
  const step = heatStep(celsius);
  const [figure, unit = ""] = formatValue(celsius, TEMPERATURE, unitOf(catalog, TEMPERATURE)).split("\u00a0");
  return (
    <Link
      to={keepWindow(view, gpuPath(gpu.id))}
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
  view: View;
  catalog: Catalog | undefined;
}

/** Their place is kept until they come. */
export function Peers({ peers, id, view, catalog }: PeersProps) {
  if (peers.length === 1) return null;
  return (
    <section className="panel">
      <div className="panel-head">
        <h2>Peers on this host</h2>
        <span className="sub">°C</span>
      </div>
      <nav className="peers" aria-label="GPUs of this host by temperature">
        {peers.map((gpu) => (
          <Peer key={gpu.id} gpu={gpu} isThis={gpu.id === id} view={view} catalog={catalog} />
        ))}
      </nav>
    </section>
  );
}
