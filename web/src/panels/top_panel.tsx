/** The highest or lowest of some place, with bars. */

import { useQuery } from "@tanstack/react-query";
import { catalogQuery, type Gpu, unitOf } from "../api/fleet";
import { type Ranked, type TopRequest, topQuery } from "../api/top";
import { Link } from "../ui/navigation";
import { Answered, Panel } from "../ui/panel";
import { formatValue } from "../ui/units";
import { keepWindow, type View } from "../ui/view";
import { nameOf } from "./gpu_columns";
import { gpuPath } from "./ladder";

export interface TopPanelProps {
  title: string;
  sub: string;
  asked: TopRequest;
  view: View;
  /** GPUs by id, for their names. */
  names: ReadonlyMap<string, Gpu>;
  none: string;
  /** False while something is asked for that has to be seen first. */
  ready?: boolean;
}

function placeOf(row: Ranked, names: ReadonlyMap<string, Gpu>): { name: string; to: string } {
  const gpu = names.get(row.gpu);
  if (row.gpu !== "") {
    return { name: gpu === undefined ? row.gpu.slice(0, 16) : nameOf(gpu), to: gpuPath(row.gpu) };
  }
  if (row.job !== "") return { name: row.job, to: `/jobs/${encodeURIComponent(row.job)}` };
  if (row.host !== "") return { name: row.host, to: `/hosts/${encodeURIComponent(row.host)}` };
  return { name: row.cluster, to: `/clusters/${encodeURIComponent(row.cluster)}` };
}

function Row({
  row,
  most,
  text,
  view,
  names,
}: {
  row: Ranked;
  most: number;
  text: string;
  view: View;
  names: TopPanelProps["names"];
}) {
  const { name, to } = placeOf(row, names);
  return (
    <li>
      <Link to={keepWindow(view, to)}>
        <span className="top-name">{name}</span>
        <span className="top-bar-of" aria-hidden="true">
          <i style={{ width: `${most > 0 ? Math.max(2, (row.value / most) * 100) : 0}%` }} />
        </span>
        <b>{text}</b>
      </Link>
    </li>
  );
}

export function TopPanel({ title, sub, asked, view, names, none, ready = true }: TopPanelProps) {
  const query = useQuery({ ...topQuery(asked), enabled: ready });
  const { data: catalog } = useQuery(catalogQuery);
  const unit = unitOf(catalog, asked.metric);
  return (
    <Panel title={title} sub={sub} className="list-panel">
      <Answered query={query} waitsFor="the ranking" height={112}>
        {({ rows }) => {
          const named = rows.filter((row) => row.gpu !== "" || row.job !== "" || row.host !== "");
          if (named.length === 0) return <p className="panel-note">{none}</p>;
          const most = Math.max(...named.map((row) => row.value));
          return (
            <ol className="top-list">
              {named.slice(0, 5).map((row) => (
                <Row
                  key={row.key}
                  row={row}
                  most={most}
                  text={formatValue(row.value, asked.metric, unit)}
                  view={view}
                  names={names}
                />
              ))}
            </ol>
          );
        }}
      </Answered>
    </Panel>
  );
}
