/** Ask in SQL: one SELECT over the curated views, run through the guard. */

import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useEffect, useState } from "react";
import { sqlQuery, viewsQuery } from "../../api/ask";
import type { WireSqlResult } from "../../api/wire";
import { Answered, Panel } from "../../ui/panel";
import { RowsTable } from "../../ui/rows_table";
import { countOf, formatNumber } from "../../ui/units";
import type { View } from "../../ui/view";

function Views() {
  const query = useQuery(viewsQuery);
  return (
    <Panel title="Views">
      <Answered query={query} waitsFor="the views" height={200}>
        {({ views }) => (
          <div className="views">
            {views.map((each) => (
              <details key={each.name}>
                <summary>
                  <code>{each.name}</code>
                </summary>
                <p>{each.description}</p>
                <ul>
                  {each.columns.map((column) => (
                    <li key={column.name} title={column.description}>
                      <code>{column.name}</code>{" "}
                      <small>{[column.type, column.unit].filter(Boolean).join(", ")}</small>
                    </li>
                  ))}
                </ul>
              </details>
            ))}
          </div>
        )}
      </Answered>
    </Panel>
  );
}

function Result({ result }: { result: WireSqlResult }) {
  return (
    <>
      <p className="panel-note">
        {countOf(result.rowCount, "row")} in {formatNumber(result.milliseconds)} ms,{" "}
        {formatNumber(result.rowsRead)} rows read{result.truncated ? "; the answer was cut here" : ""}.
      </p>
      <RowsTable
        label="Rows"
        columns={result.columns.map(({ name, unit }) => ({ name, words: name, unit }))}
        rows={result.rows ?? []}
        height={420}
      />
      <details className="sql">
        <summary>
          SQL as it was run <span>with what you may see in it</span>
        </summary>
        <pre>{result.sql}</pre>
      </details>
    </>
  );
}

export function SqlView({ view }: { view: View }) {
  const asked = view.params.get("sql") ?? "";
  const [text, setText] = useState(asked);
  useEffect(() => setText(asked), [asked]);
  const query = useQuery(sqlQuery(asked));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() === asked) void query.refetch();
    else view.set({ sql: text.trim() });
  };
  return (
    <div className="ask-body">
      <section className="panel answer" aria-label="SQL">
        <form className="sql-form" onSubmit={submit}>
          <textarea
            aria-label="SQL"
            rows={8}
            spellCheck={false}
            placeholder="SELECT … FROM a view at the right"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
          <button type="submit" className="control main" disabled={text.trim() === ""}>
            Run
          </button>
        </form>
        {asked !== "" && (
          <Answered query={query} waitsFor="the rows" height={200}>
            {(result) => <Result result={result} />}
          </Answered>
        )}
      </section>
      <aside className="side" aria-label="What may be read">
        <Views />
      </aside>
    </div>
  );
}
