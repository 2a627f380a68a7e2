/** Ask for the series of a time line, one request a kind of metric, and give its rows. */

import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { combined } from "../../api/combined";
import { type GroupedRequest, groupedQuery } from "../../api/grouped";
import type { Answering } from "../../ui/panel";
import { fillRows, joinAnswers, type RowTemplate } from "./row_templates";
import type { RowSpec } from "./spec";
import type { Drawn } from "./timeline";

export interface Rows {
  query: Answering<Drawn>;
  specs: RowSpec[];
}

/** Rows of what is there; a kind that nothing reports costs no room. */
export function useRows(asked: readonly GroupedRequest[], templates: readonly RowTemplate[]): Rows {
  const found = useQueries({ queries: asked.map((each) => groupedQuery(each)), combine: combined });
  const { answers, ...rest } = found;
  const present = useMemo(() => answers.filter((answer) => answer !== undefined), [answers]);
  const data = useMemo(() => joinAnswers(answers), [answers]);
  const specs = useMemo(
    () =>
      fillRows(
        templates,
        present.flatMap((answer) => answer.series),
      ),
    [templates, present],
  );
  return { query: { ...rest, data }, specs };
}
