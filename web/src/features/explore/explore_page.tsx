/** Any metric, over any time, told apart by what one likes. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { combined } from "../../api/combined";
import { type Catalog, catalogQuery } from "../../api/fleet";
import { groupedAddress, groupedQuery } from "../../api/grouped";
import { ageNow } from "../../api/meta";
import { healthOf } from "../../panels/health";
import { joinAnswers } from "../../panels/rows/row_templates";
import { TimelinePanel } from "../../panels/rows/timeline_panel";
import { CopyAs, toCurl } from "../../ui/copy_as";
import { Page } from "../../ui/page";
import { Skeleton } from "../../ui/states";
import { toggleTable, useView, type View } from "../../ui/view";
import { Builder } from "./builder";
import { explore } from "./explore_rows";
import { questionOf, requestsOf, toPromql } from "./question";
import { SeriesPanel } from "./series_panel";
import "./explore.css";

const STALE_MS = 60_000;
const NO_EVENTS: never[] = [];

function useExplored(view: View, catalog: Catalog) {
  const question = useMemo(() => questionOf(view.params), [view.params]);
  const requests = requestsOf(question, view, catalog);
  const now = useQueries({ queries: requests.map((each) => groupedQuery(each)), combine: combined });
  const { earlierMs } = question;
  const before = useQueries({
    queries: earlierMs === 0 ? [] : requests.map((each) => groupedQuery({ ...each, earlierMs })),
    combine: combined,
  });
  const found = useMemo(() => now.answers.filter((answer) => answer !== undefined), [now.answers]);
  const earlier = useMemo(() => before.answers.filter((answer) => answer !== undefined), [before.answers]);
  const drawn = useMemo(() => joinAnswers(now.answers), [now.answers]);
  const explored = useMemo(
    () => explore(question.metrics, drawn?.columns ?? { ts: [], values: {} }, found, earlier, catalog),
    [question, drawn, found, earlier, catalog],
  );
  const data = useMemo(
    () => (drawn === undefined ? undefined : { ...drawn, columns: explored.columns }),
    [drawn, explored],
  );
  const { answers: _, ...query } = now;
  return { question, requests, explored, query: { ...query, data } };
}

function Body({ view, catalog }: { view: View; catalog: Catalog }) {
  const { question, requests, explored, query } = useExplored(view, catalog);
  const meta = query.data?.meta;
  const metrics = question.metrics.flatMap((name) => catalog.get(name) ?? []);
  const curls = requests.flatMap((each, at) =>
    ["columns", "csv"].map((format) => ({
      name: `curl, ${format === "csv" ? "CSV" : "JSON"}${requests.length > 1 ? ` ${at + 1}` : ""}`,
      text: () => toCurl(groupedAddress(each, view.span, format)),
    })),
  );
  return (
    <>
      <Builder view={view} catalog={catalog} question={question} />
      <TimelinePanel
        title="What was found"
        query={query}
        view={view}
        specs={explored.specs}
        events={NO_EVENTS}
        ageMs={meta === undefined || !view.window.live ? null : ageNow(meta, view.now)}
        staleMs={STALE_MS}
        none={{
          title: "No sample answers this",
          hint: "Nothing of this kind was told in this window. A wider range, fewer filters, or another metric may show something; the catalogue says what each metric needs.",
        }}
        tools={
          <CopyAs
            forms={[
              ...curls,
              { name: "PromQL", text: () => metrics.map((metric) => toPromql(question, metric)).join("\n") },
            ]}
          />
        }
      />
      <SeriesPanel explored={explored} view={view} />
    </>
  );
}

export function ExplorePage() {
  const view = useView("1h");
  const catalog = useQuery(catalogQuery);
  return (
    <Page
      title="Explore"
      view={view}
      health={healthOf(undefined, view.now, STALE_MS)}
      up="/"
      keys={{ t: () => toggleTable(view) }}
      keyHelp={[["T", "charts or table"]]}
    >
      <div className="say">
        <h1>Explore</h1>
      </div>
      {catalog.data === undefined ? (
        <Skeleton height={240} waitsFor="the catalogue" />
      ) : (
        <Body view={view} catalog={catalog.data} />
      )}
    </Page>
  );
}
