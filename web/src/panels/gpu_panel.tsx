/** A panel with the GPUs of some place: filtered by words, sorted, each leading to its page. */

import { useQuery } from "@tanstack/react-query";
import { useId, useMemo } from "react";
import { catalogQuery, type Gpu, type GpuList } from "../api/fleet";
import { ageNow, platformOffset } from "../api/meta";
import { Icon } from "../ui/icon";
import { Answered, type Answering, Broken, Panel } from "../ui/panel";
import { Empty, StaleBadge } from "../ui/states";
import { Table } from "../ui/table";
import { parseSort } from "../ui/table_sort";
import { formatNumber } from "../ui/units";
import { keepWindow, type View } from "../ui/view";
import { filterGpus, gpuColumns } from "./gpu_columns";
import { gpuPath } from "./ladder";

const STALE_MS = 30_000;
const WORST_FIRST = { key: "status", descending: false };

export function newestOf(gpus: readonly Gpu[]): number | undefined {
  let most: number | undefined;
  for (const gpu of gpus) {
    if (gpu.lastSeen !== null && (most === undefined || gpu.lastSeen > most)) most = gpu.lastSeen;
  }
  return most;
}

/** A field that filters a list while one types; the words stand in the address. */
export function Filter({ label, view }: { label: string; view: View }) {
  const id = useId();
  return (
    <label htmlFor={id} className="filter">
      <Icon name="search" size={12} />
      <span className="hidden">{label}</span>
      <input
        id={id}
        type="search"
        data-filter=""
        value={view.params.get("q") ?? ""}
        placeholder={label}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => view.set({ q: event.target.value })}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
    </label>
  );
}

/** Put the caret into the filter of the page, if it has one. */
export function focusFilter(): void {
  document.querySelector<HTMLInputElement>("[data-filter]")?.focus();
}

export interface GpuPanelProps {
  query: Answering<GpuList>;
  view: View;
  height: number | "page";
  /** GPUs of the answer that belong here; all where it is left out. */
  only?: (gpu: Gpu) => boolean;
  leaveOut?: readonly string[];
  /** What is said where there is none; an empty fleet where it is left out. */
  none?: string;
}

function Rows({ list, view, height, only, leaveOut, none }: GpuPanelProps & { list: GpuList }) {
  const { data: catalog } = useQuery(catalogQuery);
  const find = view.params.get("q") ?? "";
  const here = useMemo(() => (only === undefined ? list.gpus : list.gpus.filter(only)), [list, only]);
  const shown = useMemo(() => filterGpus(here, find), [here, find]);
  const offset = useMemo(() => platformOffset(list.meta, newestOf(list.gpus)), [list]);
  const now = view.now + offset;
  const columns = useMemo(() => gpuColumns(catalog, now, leaveOut), [catalog, now, leaveOut]);
  if (here.length === 0 && none !== undefined) return <p className="panel-note">{none}</p>;
  if (here.length === 0) {
    return (
      <Empty title="No GPU has reported yet" command="secondsight up --simulate 200x8">
        An agent on a GPU host, or a simulated fleet, fills this list within seconds.
      </Empty>
    );
  }
  return (
    <Table
      label="GPUs"
      rows={shown}
      columns={columns}
      keyOf={(gpu) => gpu.id}
      linkOf={(gpu) => keepWindow(view, gpuPath(gpu.id))}
      sort={parseSort(view.params.get("sort"), WORST_FIRST)}
      onSort={(sort) => view.set({ sort })}
      height={height}
      none={`No GPU matches “${find}”.`}
      classOf={(gpu) => gpu.status}
    />
  );
}

export function GpuPanel(props: GpuPanelProps) {
  const { query, view, only } = props;
  const list = query.data;
  const count =
    list === undefined ? 0 : only === undefined ? list.gpus.length : list.gpus.filter(only).length;
  return (
    <Panel
      title="GPUs"
      className="gpu-panel"
      sub={list === undefined ? "" : formatNumber(count)}
      tools={
        <>
          <Broken query={query} />
          {list !== undefined && <StaleBadge ageMs={ageNow(list.meta, view.now)} limitMs={STALE_MS} />}
          <Filter label="Filter GPUs" view={view} />
        </>
      }
    >
      <Answered query={query} waitsFor="the list of GPUs" height={240}>
        {(data) => <Rows {...props} list={data} />}
      </Answered>
    </Panel>
  );
}
