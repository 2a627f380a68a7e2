/** Gaps as rows: where, since when, how long, why. */

import { useMemo } from "react";
import type { Story } from "../../api/custody";
import type { Gpu } from "../../api/fleet";
import { fixedParams } from "../../model/window";
import { nameOf } from "../../panels/gpu_columns";
import { clusterPath, gpuPath, hostPath, rackPath } from "../../panels/ladder";
import { StatusWord } from "../../ui/icon";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatAge, formatClock, formatDay, formatDuration } from "../../ui/times";
import { formatNumber } from "../../ui/units";
import type { View } from "../../ui/view";
import { reasonMeaning, reasonWords } from "./reason";

const NEWEST_FIRST = { key: "start", descending: true };
const AROUND_MS = 120_000;

export type Names = ReadonlyMap<string, Gpu>;

/** The place of a story, in words. */
export function placeOf(story: Story, names: Names): string {
  const gpu = names.get(story.entity);
  if (gpu !== undefined) return nameOf(gpu);
  if (story.entity !== "" && story.entity !== story.host)
    return `${story.host} · ${story.entity.slice(0, 12)}`;
  return [story.cluster, story.rack, story.host].filter(Boolean).at(-1) ?? "";
}

function pathOf(story: Story): string {
  if (story.entity.startsWith("GPU-")) return gpuPath(story.entity);
  if (story.host !== "") return hostPath(story.host);
  return story.rack === "" ? clusterPath(story.cluster) : rackPath(story.cluster, story.rack);
}

function Reason({ story }: { story: Story }) {
  const tone = story.isExpected ? "none" : story.end === null ? "bad" : "warn";
  return (
    <span className="gap-reason" title={reasonMeaning(story.reason)}>
      <StatusWord tone={tone} word={reasonWords(story.reason)} />
      <small>{reasonMeaning(story.reason)}</small>
    </span>
  );
}

function columnsOf(now: number, names: Names): Column<Story>[] {
  const where = (story: Story) => placeOf(story, names);
  const lengthOf = (story: Story) => (story.end ?? now) - story.start;
  return [
    { key: "place", label: "Where", width: "minmax(128px, 1.4fr)", cell: where, sortBy: where },
    { key: "level", label: "Level", width: "80px", wide: true, cell: (story) => story.level },
    {
      key: "reason",
      label: "Reason",
      width: "minmax(132px, 2fr)",
      cell: (story) => <Reason story={story} />,
      sortBy: (story) => story.reason,
    },
    {
      key: "start",
      label: "From, UTC",
      width: "124px",
      wide: true,
      cell: (story) => `${formatDay(story.start)} ${formatClock(story.start)}`,
      sortBy: (story) => story.start,
    },
    {
      key: "length",
      label: "Lasting",
      width: "112px",
      numeric: true,
      cell: (story) =>
        story.end === null ? `${formatAge(lengthOf(story))} so far` : formatDuration(lengthOf(story)),
      sortBy: lengthOf,
    },
    {
      key: "entities",
      label: "Entities",
      width: "80px",
      numeric: true,
      wide: true,
      cell: (story) => formatNumber(story.entities),
      sortBy: (story) => story.entities,
    },
    {
      key: "missing",
      label: "Missing",
      width: "88px",
      numeric: true,
      wide: true,
      cell: (story) => formatNumber(story.missing),
      sortBy: (story) => story.missing,
    },
  ];
}

export interface StoriesProps {
  stories: readonly Story[];
  view: View;
  names: Names;
}

export function StoryTable({ stories, view, names }: StoriesProps) {
  const minute = Math.floor(view.now / 5000) * 5000;
  const columns = useMemo(() => columnsOf(minute, names), [minute, names]);
  const linkOf = (story: Story) => {
    const around = fixedParams(story.start - AROUND_MS, (story.end ?? view.span.to) + AROUND_MS);
    return `${pathOf(story)}?from=${around["from"]}&to=${around["to"]}`;
  };
  return (
    <Table
      label="Gaps"
      rows={stories}
      columns={columns}
      keyOf={(story) => story.key}
      linkOf={linkOf}
      sort={parseSort(view.params.get("sort"), NEWEST_FIRST)}
      onSort={(sort) => view.set({ sort })}
      height={420}
      none="Nothing is missing in this window: every expected sample is there, or its absence is expected."
    />
  );
}
