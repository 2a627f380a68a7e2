/** The list of GPUs: virtual, sortable, one line each. */

import { type ReactNode, useLayoutEffect, useMemo, useRef, useState } from "react";
import { type Catalog, type Gpu, type Status, unitOf } from "../../api/fleet";
import { Icon, StatusWord, type Tone } from "../../ui/icon";
import { useNarrow } from "../../ui/narrow";
import { Link, navigate } from "../../ui/navigation";
import { formatAge } from "../../ui/times";
import { formatValue } from "../../ui/units";
import { type RowSpan, rowsInSight } from "../../ui/window_rows";
import { COLUMNS, type Column, filterGpus, nameOf, nextSort, type Sort, sortGpus } from "./gpu_rows";

const ROW_PX = 28;
const NARROW_ROW_PX = 56;

const TONES: Record<Status, Tone> = { reporting: "ok", silent: "warn", lost: "bad", unknown: "none" };
const WORDS: Record<Status, string> = {
  reporting: "Reporting",
  silent: "Silent",
  lost: "Lost",
  unknown: "Unknown",
};

export interface GpuListProps {
  gpus: readonly Gpu[];
  catalog: Catalog | undefined;
  find: string;
  sort: Sort;
  onSort: (sort: string) => void;
  /** Present time by the platform's clock. */
  now: number;
}

function useRows(count: number, rowPx: number) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState<RowSpan>({ first: 0, last: 40 });
  const measure = () => {
    const element = box.current;
    if (element === null) return;
    const next = rowsInSight(element.scrollTop, element.clientHeight, rowPx, count);
    setSpan((known) => (known.first === next.first && known.last === next.last ? known : next));
  };
  useLayoutEffect(measure);
  return { box, span, measure };
}

function SortArrow({ sort, column }: { sort: Sort; column: Column }) {
  if (sort.key !== column.key) return null;
  return <Icon name={sort.descending ? "down" : "up"} size={12} />;
}

function ariaSort(sort: Sort, column: Column): "ascending" | "descending" | "none" {
  if (sort.key !== column.key) return "none";
  return sort.descending ? "descending" : "ascending";
}

function Head({ sort, onSort }: Pick<GpuListProps, "sort" | "onSort">) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the buttons inside are what one focuses
    <div role="row" className="gpu-head" aria-rowindex={1}>
      {COLUMNS.map((column) => (
        // biome-ignore lint/a11y/useFocusableInteractive: the button inside is what one focuses
        <div
          key={column.key}
          role="columnheader"
          aria-sort={ariaSort(sort, column)}
          className={`c-${column.key}`}
        >
          <button type="button" onClick={() => onSort(nextSort(sort, column))}>
            {column.label}
            <SortArrow sort={sort} column={column} />
          </button>
        </div>
      ))}
    </div>
  );
}

function ShareBar({ ratio }: { ratio: number | null | undefined }) {
  const width = Math.round(Math.min(Math.max(ratio ?? 0, 0), 1) * 100);
  return (
    <span className="share-bar" aria-hidden="true">
      <i style={{ width: `${width}%` }} />
    </span>
  );
}

function cellOf(gpu: Gpu, column: Column, catalog: Catalog | undefined, now: number): ReactNode {
  const { metric } = column;
  if (metric !== undefined) {
    const text = formatValue(gpu.values[metric], metric, unitOf(catalog, metric));
    return column.key === "utilization" ? (
      <>
        <ShareBar ratio={gpu.values[metric]} />
        <span className="share">{text}</span>
      </>
    ) : (
      text
    );
  }
  switch (column.key) {
    case "gpu":
      return <Link to={`/gpus/${encodeURIComponent(gpu.id)}`}>{nameOf(gpu)}</Link>;
    case "cluster":
      return gpu.cluster;
    case "product":
      return gpu.product.replace(/^NVIDIA /, "");
    case "job":
      return gpu.job === "" ? "–" : gpu.job;
    case "age":
      return gpu.lastSeen === null ? "never" : formatAge(now - gpu.lastSeen);
    default:
      return <StatusWord tone={TONES[gpu.status]} word={WORDS[gpu.status]} />;
  }
}

function Row({
  gpu,
  index,
  catalog,
  now,
}: {
  gpu: Gpu;
  index: number;
  catalog: Catalog | undefined;
  now: number;
}) {
  const open = () => {
    if (getSelection()?.toString() === "") navigate(`/gpus/${encodeURIComponent(gpu.id)}`);
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the link in the first cell is the way for keys
    // biome-ignore lint/a11y/useFocusableInteractive: the link in the first cell is what one focuses
    <div role="row" className={`gpu-row ${gpu.status}`} aria-rowindex={index + 2} onClick={open}>
      {COLUMNS.map((column) => (
        <div key={column.key} role="cell" className={`c-${column.key}`}>
          {cellOf(gpu, column, catalog, now)}
        </div>
      ))}
    </div>
  );
}

function NoRow({ find }: { find: string }) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: a remark, nothing to do here
    <div role="row" className="gpu-none">
      <div role="cell">No GPU matches “{find}”.</div>
    </div>
  );
}

export function GpuList({ gpus, catalog, find, sort, onSort, now }: GpuListProps) {
  const rowPx = useNarrow() ? NARROW_ROW_PX : ROW_PX;
  const shown = useMemo(() => sortGpus(filterGpus(gpus, find), sort), [gpus, find, sort]);
  const { box, span, measure } = useRows(shown.length, rowPx);
  const above = Math.min(span.first, shown.length);
  const below = Math.max(0, shown.length - span.last);
  return (
    <div role="table" className="gpu-table" aria-label="GPUs" aria-rowcount={shown.length + 1}>
      <Head sort={sort} onSort={onSort} />
      <div ref={box} role="rowgroup" className="gpu-rows" onScroll={measure} tabIndex={-1}>
        <div role="presentation" style={{ paddingTop: above * rowPx, paddingBottom: below * rowPx }}>
          {shown.slice(span.first, span.last).map((gpu, offset) => (
            <Row key={gpu.id} gpu={gpu} index={span.first + offset} catalog={catalog} now={now} />
          ))}
          {shown.length === 0 && <NoRow find={find} />}
        </div>
      </div>
    </div>
  );
}
