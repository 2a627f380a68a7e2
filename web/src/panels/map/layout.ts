/** Place GPUs on a map: cluster > rack > host > cell. Pure: the same GPUs in the same room give the same map. */

import { compareNames } from "../../ui/table_sort";

export interface MapGpu {
  id: string;
  cluster: string;
  rack: string;
  host: string;
  index: number | null;
}

export interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface HostArea extends Area {
  host: string;
}

export interface RackArea extends Area {
  cluster: string;
  rack: string;
  hosts: HostArea[];
}

export interface ClusterArea extends Area {
  cluster: string;
  gpus: number;
}

export interface MapLayout {
  width: number;
  height: number;
  /** Size of a cell, without the space after it. */
  cellWidth: number;
  cellHeight: number;
  /** True where cells are large enough for their value, and hosts for their name. */
  labelled: boolean;
  clusters: ClusterArea[];
  racks: RackArea[];
  /** Left and top of the cell of each GPU, in the order of the GPUs. */
  xs: Float32Array;
  ys: Float32Array;
}

interface Metrics {
  cellWidth: number;
  cellHeight: number;
  gap: number;
  hostName: number;
  rackHead: number;
  rackGap: number;
  labelled: boolean;
}

interface Host {
  name: string;
  gpus: number[];
}

interface Rack {
  name: string;
  hosts: Host[];
  columns: number;
}

interface Cluster {
  name: string;
  racks: Rack[];
  gpus: number;
}

const CLUSTER_HEAD = 22;
const CLUSTER_GAP = 24;
const COLUMNS_MAXIMUM = 16;
const CELLS = [16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1];
const LABELLED: Metrics = {
  cellWidth: 28,
  cellHeight: 24,
  gap: 1,
  hostName: 80,
  rackHead: 18,
  rackGap: 20,
  labelled: true,
};

function plain(cell: number): Metrics {
  const gap = cell >= 3 ? 1 : 0;
  return {
    cellWidth: cell,
    cellHeight: cell,
    gap,
    hostName: 0,
    rackHead: 0,
    rackGap: Math.max(2, Math.min(6, cell)),
    labelled: false,
  };
}

type Named<T> = Map<string, T>;

function inside<T>(parent: Named<T>, name: string, make: () => T): T {
  const known = parent.get(name);
  if (known !== undefined) return known;
  const made = make();
  parent.set(name, made);
  return made;
}

function ordered<T>(parent: Named<T>): [string, T][] {
  return [...parent].sort(([a], [b]) => compareNames(a, b));
}

function toRack(name: string, byHost: Named<number[]>, gpus: readonly MapGpu[]): Rack {
  const indexOf = (at: number) => gpus[at]?.index ?? 0;
  const hosts = ordered(byHost).map(([host, onHost]) => ({
    name: host,
    gpus: onHost.sort((a, b) => indexOf(a) - indexOf(b)),
  }));
  const most = Math.max(...hosts.map((host) => host.gpus.length));
  return { name, hosts, columns: Math.min(COLUMNS_MAXIMUM, most) };
}

/** GPUs by where they are; numbers are places in the list. */
function groupGpus(gpus: readonly MapGpu[]): Cluster[] {
  const byCluster: Named<Named<Named<number[]>>> = new Map();
  gpus.forEach(({ cluster, rack, host }, at) => {
    const byRack = inside(byCluster, cluster, () => new Map<string, Named<number[]>>());
    const byHost = inside(byRack, rack, () => new Map<string, number[]>());
    inside(byHost, host, () => [] as number[]).push(at);
  });
  return ordered(byCluster).map(([name, byRack]) => {
    const racks = ordered(byRack).map(([rack, byHost]) => toRack(rack, byHost, gpus));
    const count = (hosts: Host[]) => hosts.reduce((sum, host) => sum + host.gpus.length, 0);
    return { name, racks, gpus: racks.reduce((sum, rack) => sum + count(rack.hosts), 0) };
  });
}

function hostHeight(host: Host, columns: number, m: Metrics): number {
  return Math.ceil(host.gpus.length / columns) * (m.cellHeight + m.gap);
}

function rackSize(rack: Rack, m: Metrics): { width: number; height: number } {
  const height = rack.hosts.reduce((sum, host) => sum + hostHeight(host, rack.columns, m), 0);
  return { width: m.hostName + rack.columns * (m.cellWidth + m.gap), height: m.rackHead + height };
}

class Builder {
  readonly racks: RackArea[] = [];
  readonly clusters: ClusterArea[] = [];
  readonly xs: Float32Array;
  readonly ys: Float32Array;
  readonly #m: Metrics;

  constructor(count: number, m: Metrics) {
    this.xs = new Float32Array(count);
    this.ys = new Float32Array(count);
    this.#m = m;
  }

  #placeRack(cluster: string, rack: Rack, x: number, y: number): void {
    const m = this.#m;
    const size = rackSize(rack, m);
    let top = y + m.rackHead;
    const hosts = rack.hosts.map((host) => {
      host.gpus.forEach((gpu, at) => {
        this.xs[gpu] = x + m.hostName + (at % rack.columns) * (m.cellWidth + m.gap);
        this.ys[gpu] = top + Math.floor(at / rack.columns) * (m.cellHeight + m.gap);
      });
      const height = hostHeight(host, rack.columns, m);
      const area = { host: host.name, x, y: top, width: size.width, height };
      top += height;
      return area;
    });
    this.racks.push({ cluster, rack: rack.name, x, y, ...size, hosts });
  }

  /** Racks of a cluster in columns that are at most `room.height` high; gives what it took. */
  columns(cluster: Cluster, x: number, y: number, height: number): Area {
    const gap = this.#m.rackGap;
    let [left, top, wide, bottom] = [x, y + CLUSTER_HEAD, 0, 0];
    for (const rack of cluster.racks) {
      const size = rackSize(rack, this.#m);
      if (top > y + CLUSTER_HEAD && top + size.height > y + CLUSTER_HEAD + height) {
        left += wide + gap;
        top = y + CLUSTER_HEAD;
        wide = 0;
      }
      this.#placeRack(cluster.name, rack, left, top);
      wide = Math.max(wide, size.width);
      bottom = Math.max(bottom, top + size.height - y);
      top += size.height + gap;
    }
    return this.#close(cluster, { x, y, width: left + wide - x, height: bottom });
  }

  /** Racks of a cluster in rows that are at most `width` wide. */
  rows(cluster: Cluster, x: number, y: number, width: number): Area {
    const gap = this.#m.rackGap;
    let [left, top, high, right] = [x, y + CLUSTER_HEAD, 0, 0];
    for (const rack of cluster.racks) {
      const size = rackSize(rack, this.#m);
      if (left > x && left + size.width > x + width) {
        left = x;
        top += high + gap;
        high = 0;
      }
      this.#placeRack(cluster.name, rack, left, top);
      high = Math.max(high, size.height);
      left += size.width + gap;
      right = Math.max(right, left - gap);
    }
    return this.#close(cluster, { x, y, width: right - x, height: top + high - y });
  }

  #close(cluster: Cluster, area: Area): Area {
    this.clusters.push({ cluster: cluster.name, gpus: cluster.gpus, ...area });
    return area;
  }

  done(): MapLayout {
    const m = this.#m;
    const far = (areas: readonly Area[], side: (area: Area) => number) => Math.max(0, ...areas.map(side));
    return {
      width: far(this.clusters, (area) => area.x + area.width),
      height: far(this.clusters, (area) => area.y + area.height),
      cellWidth: m.cellWidth,
      cellHeight: m.cellHeight,
      labelled: m.labelled,
      clusters: this.clusters,
      racks: this.racks,
      xs: this.xs,
      ys: this.ys,
    };
  }
}

function across(clusters: readonly Cluster[], count: number, m: Metrics, height: number): MapLayout {
  const builder = new Builder(count, m);
  let x = 0;
  for (const cluster of clusters) x += builder.columns(cluster, x, 0, height).width + CLUSTER_GAP;
  return builder.done();
}

function stacked(clusters: readonly Cluster[], count: number, m: Metrics, width: number): MapLayout {
  const builder = new Builder(count, m);
  let y = 0;
  for (const cluster of clusters) y += builder.rows(cluster, 0, y, width).height + 12;
  return builder.done();
}

/** The map of some GPUs in a room of this size: labelled where that fits, else the largest cells that do. */
export function layoutMap(
  gpus: readonly MapGpu[],
  width: number,
  height: number,
  narrow: boolean,
): MapLayout {
  const clusters = groupGpus(gpus);
  const place = narrow
    ? (m: Metrics) => stacked(clusters, gpus.length, m, width)
    : (m: Metrics) => across(clusters, gpus.length, m, height - CLUSTER_HEAD);
  const fits = (layout: MapLayout) => layout.width <= width && layout.height <= height;
  const labelled = gpus.length <= 2048 ? place(LABELLED) : undefined;
  if (labelled !== undefined && fits(labelled)) return labelled;
  const wrapped = gpus.length <= 2048 ? stacked(clusters, gpus.length, LABELLED, width) : undefined;
  if (wrapped !== undefined && fits(wrapped)) return wrapped;
  return largest(place, fits) ?? stacked(clusters, gpus.length, plain(1), width);
}

/** The layout with the largest cells that fits, found by halves; undefined where none does. */
function largest(
  place: (m: Metrics) => MapLayout,
  fits: (layout: MapLayout) => boolean,
): MapLayout | undefined {
  let found: MapLayout | undefined;
  let [first, end] = [0, CELLS.length];
  while (first < end) {
    const middle = (first + end) >> 1;
    const layout = place(plain(CELLS[middle] ?? 1));
    if (fits(layout)) {
      found = layout;
      end = middle;
    } else {
      first = middle + 1;
    }
  }
  return found;
}

/** GPU whose cell is under a point, or none. */
export function gpuAt(layout: MapLayout, x: number, y: number): number | null {
  const { xs, ys, cellWidth, cellHeight } = layout;
  for (let at = 0; at < xs.length; at += 1) {
    const left = xs[at] ?? 0;
    const top = ys[at] ?? 0;
    if (x >= left && x < left + cellWidth + 1 && y >= top && y < top + cellHeight + 1) return at;
  }
  return null;
}

/** GPUs whose cells touch an area. */
export function gpusIn(layout: MapLayout, area: Area): number[] {
  const { xs, ys, cellWidth, cellHeight } = layout;
  const found: number[] = [];
  for (let at = 0; at < xs.length; at += 1) {
    const left = xs[at] ?? 0;
    const top = ys[at] ?? 0;
    const beside = left > area.x + area.width || left + cellWidth < area.x;
    if (!beside && top <= area.y + area.height && top + cellHeight >= area.y) found.push(at);
  }
  return found;
}

const DIRECTIONS: Record<string, readonly [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** The nearest cell in the direction of an arrow key; the same one at the edge. */
export function gpuBeside(layout: MapLayout, from: number, key: string): number {
  const [dx, dy] = DIRECTIONS[key] ?? [0, 0];
  const x = layout.xs[from] ?? 0;
  const y = layout.ys[from] ?? 0;
  let best = from;
  let least = Number.POSITIVE_INFINITY;
  for (let at = 0; at < layout.xs.length; at += 1) {
    const ahead = ((layout.xs[at] ?? 0) - x) * dx + ((layout.ys[at] ?? 0) - y) * dy;
    if (ahead <= 0) continue;
    const aside = Math.abs(((layout.xs[at] ?? 0) - x) * dy) + Math.abs(((layout.ys[at] ?? 0) - y) * dx);
    const cost = ahead + aside * 4;
    if (cost < least) {
      least = cost;
      best = at;
    }
  }
  return best;
}
