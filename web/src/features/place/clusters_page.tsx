/** All clusters, the worst first. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Catalog, catalogQuery, unitOf } from "../../api/fleet";
import { clustersQuery, type PlaceSums } from "../../api/places";
import { Share } from "../../panels/gpu_columns";
import { healthOf } from "../../panels/health";
import { clusterPath } from "../../panels/ladder";
import { Troubles, weightOf } from "../../panels/status";
import { Page } from "../../ui/page";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatNumber, formatValue } from "../../ui/units";
import { keepWindow, useView } from "../../ui/view";

const STALE_MS = 30_000;
const WORST_FIRST = { key: "status", descending: true };

/** Columns of clusters, or of hosts where `name` gives their names. */
export function placeColumns(
  catalog: Catalog | undefined,
  label: string,
  name: (sums: PlaceSums) => string,
): Column<PlaceSums>[] {
  const say = (metric: string, value: number | null) => formatValue(value, metric, unitOf(catalog, metric));
  return [
    { key: "name", label, width: "minmax(120px, 1.6fr)", cell: name, sortBy: name },
    {
      key: "hosts",
      label: "Hosts",
      width: "80px",
      numeric: true,
      wide: true,
      cell: (sums) => formatNumber(sums.hosts),
      sortBy: (sums) => sums.hosts,
    },
    {
      key: "gpus",
      label: "GPUs",
      width: "80px",
      numeric: true,
      cell: (sums) => formatNumber(sums.total),
      sortBy: (sums) => sums.total,
    },
    {
      key: "utilization",
      label: "Utilisation",
      width: "120px",
      numeric: true,
      wide: true,
      cell: (sums) => (
        <Share ratio={sums.utilizationRatio} text={say("gpu_utilization_ratio", sums.utilizationRatio)} />
      ),
      sortBy: (sums) => sums.utilizationRatio,
    },
    {
      key: "power",
      label: "Power",
      width: "96px",
      numeric: true,
      wide: true,
      cell: (sums) => say("gpu_power_watts", sums.powerWatts),
      sortBy: (sums) => sums.powerWatts,
    },
    {
      key: "status",
      label: "Status",
      width: "minmax(128px, 1fr)",
      cell: (sums) => <Troubles health={sums.health} />,
      sortBy: (sums) => weightOf(sums.health),
    },
  ];
}

export function ClustersPage() {
  const view = useView("1h");
  const query = useQuery(clustersQuery);
  const { data: catalog } = useQuery(catalogQuery);
  const columns = useMemo(() => placeColumns(catalog, "Cluster", (sums) => sums.cluster), [catalog]);
  return (
    <Page title="Clusters" view={view} health={healthOf(query.data?.meta, view.now, STALE_MS)} up="/">
      <div className="say">
        <h1>Clusters</h1>
      </div>
      <Panel
        title="Clusters"
        sub={query.data === undefined ? "" : formatNumber(query.data.clusters.length)}
        tools={<Broken query={query} />}
      >
        <Answered query={query} waitsFor="the clusters" height={200}>
          {({ clusters }) => (
            <Table
              label="Clusters"
              rows={clusters}
              columns={columns}
              keyOf={(sums) => sums.cluster}
              linkOf={(sums) => keepWindow(view, clusterPath(sums.cluster))}
              sort={parseSort(view.params.get("sort"), WORST_FIRST)}
              onSort={(sort) => view.set({ sort })}
              height="page"
              none="No cluster has reported yet. An agent on a GPU host makes its cluster appear within seconds."
            />
          )}
        </Answered>
      </Panel>
    </Page>
  );
}
