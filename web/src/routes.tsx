/** Which page an address names. The first page comes with the frame, each other one when it is first needed. */

import { type ComponentType, lazy, type ReactNode } from "react";
import { FleetPage, GpusPage } from "./features/fleet/fleet_page";
import type { PageLink } from "./ui/shell";

export const PAGES: readonly PageLink[] = [
  { to: "/", name: "Fleet", icon: "fleet", group: 0, isMain: true },
  { to: "/clusters", name: "Clusters", icon: "clusters", group: 0 },
  { to: "/gpus", name: "GPUs", icon: "gpus", group: 0, isMain: true },
];

const GpuPage = lazy(() => import("./features/gpu/gpu_page").then((page) => ({ default: page.GpuPage })));
const ClustersPage = lazy(() =>
  import("./features/place/clusters_page").then((page) => ({ default: page.ClustersPage })),
);
const ClusterPage = lazy(() =>
  import("./features/place/cluster_page").then((page) => ({ default: page.ClusterPage })),
);
const HostPage = lazy(() =>
  import("./features/place/host_page").then((page) => ({ default: page.HostPage })),
);

const WHOLE: Record<string, ComponentType> = {
  "/": FleetPage,
  "/gpus": GpusPage,
  "/clusters": ClustersPage,
};

/** Addresses with names in them; what they match is decoded. */
const NAMED: readonly [pattern: RegExp, page: (name: string, more: string) => ReactNode][] = [
  [/^\/gpus\/([^/]+)$/, (id) => <GpuPage key={id} id={id} />],
  [/^\/clusters\/([^/]+)$/, (cluster) => <ClusterPage key={cluster} cluster={cluster} />],
  [
    /^\/clusters\/([^/]+)\/racks\/([^/]+)$/,
    (cluster, rack) => <ClusterPage key={`${cluster}/${rack}`} cluster={cluster} rack={rack} />,
  ],
  [/^\/hosts\/([^/]+)$/, (host) => <HostPage key={host} host={host} />],
];

/** The page of an address; undefined where there is none. */
export function pageOf(path: string): ReactNode {
  const Whole = WHOLE[path];
  if (Whole !== undefined) return <Whole />;
  for (const [pattern, page] of NAMED) {
    const [found, name = "", more = ""] = pattern.exec(path) ?? [];
    if (found !== undefined) return page(decodeURIComponent(name), decodeURIComponent(more));
  }
  return undefined;
}

/** Name of the page in the rail that an address belongs to. */
export function currentPage(path: string): string {
  if (path.startsWith("/hosts")) return "Clusters";
  const first = `/${path.split("/")[1] ?? ""}`;
  return PAGES.find((page) => page.to === first)?.name ?? "";
}
