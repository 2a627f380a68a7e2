/** Which page an address names. The first page comes with the frame, each other one when it is first needed. */

import { type ComponentType, lazy, type ReactNode } from "react";
import { FleetPage, GpusPage } from "./features/fleet/fleet_page";
import type { PageLink } from "./ui/shell";

export const PAGES: readonly PageLink[] = [
  { to: "/", name: "Fleet", icon: "fleet", group: 0, isMain: true },
  { to: "/clusters", name: "Clusters", icon: "clusters", group: 0 },
  { to: "/gpus", name: "GPUs", icon: "gpus", group: 0, isMain: true },
  { to: "/jobs", name: "Jobs", icon: "jobs", group: 0, isMain: true },
  { to: "/models", name: "Models", icon: "models", group: 0 },
  { to: "/explore", name: "Explore", icon: "explore", group: 1 },
  { to: "/ask", name: "Ask", icon: "ask", group: 1, isMain: true },
  { to: "/events", name: "Events", icon: "events", group: 1 },
  { to: "/gaps", name: "Gaps", icon: "gaps", group: 2 },
  { to: "/collectors", name: "Collectors", icon: "collectors", group: 2 },
  { to: "/catalog", name: "Catalogue", icon: "catalogue", group: 2 },
  { to: "/admin", name: "Admin", icon: "admin", group: 2 },
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
const JobsPage = lazy(() => import("./features/jobs/jobs_page").then((page) => ({ default: page.JobsPage })));
const ModelsPage = lazy(() =>
  import("./features/jobs/jobs_page").then((page) => ({ default: page.ModelsPage })),
);
const WorkPage = lazy(() => import("./features/jobs/work_page").then((page) => ({ default: page.WorkPage })));
const ExplorePage = lazy(() =>
  import("./features/explore/explore_page").then((page) => ({ default: page.ExplorePage })),
);
const EventsPage = lazy(() =>
  import("./features/events/events_page").then((page) => ({ default: page.EventsPage })),
);
const GapsPage = lazy(() => import("./features/gaps/gaps_page").then((page) => ({ default: page.GapsPage })));
const CollectorsPage = lazy(() =>
  import("./features/collectors/collectors_page").then((page) => ({ default: page.CollectorsPage })),
);
const CataloguePage = lazy(() =>
  import("./features/catalogue/catalogue_page").then((page) => ({ default: page.CataloguePage })),
);
const AdminPage = lazy(() =>
  import("./features/admin/admin_page").then((page) => ({ default: page.AdminPage })),
);
const AskPage = lazy(() => import("./features/ask/ask_page").then((page) => ({ default: page.AskPage })));

const WHOLE: Record<string, ComponentType> = {
  "/": FleetPage,
  "/gpus": GpusPage,
  "/clusters": ClustersPage,
  "/jobs": JobsPage,
  "/models": ModelsPage,
  "/explore": ExplorePage,
  "/events": EventsPage,
  "/gaps": GapsPage,
  "/collectors": CollectorsPage,
  "/catalog": CataloguePage,
  "/admin": AdminPage,
  "/ask": AskPage,
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
  [/^\/jobs\/([^/]+)$/, (job) => <WorkPage key={job} kind="job" name={job} />],
  [/^\/models\/([^/]+)$/, (model) => <WorkPage key={model} kind="model" name={model} />],
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
