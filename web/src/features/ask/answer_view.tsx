/** One answer: how the question was read, what is said, the chart, the figures, the SQL, the caveats. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { clustersQuery } from "../../api/places";
import type { WireAsk, WireAskTable } from "../../api/wire";
import { canCopy, useCopied } from "../../ui/copy_as";
import { Icon, Shape } from "../../ui/icon";
import { Link } from "../../ui/navigation";
import { Panel } from "../../ui/panel";
import { RowsTable } from "../../ui/rows_table";
import { AnswerChart } from "./answer_chart";
import { type Chip, chipsOf } from "./chips";
import { rowOf, sourceOf } from "./citations";

/** A piece of the reading; choosing another asks again and leaves the words of the question as they are. */
function ChipView({ chip, onAsk }: { chip: Chip; onAsk: (turn: string) => void }) {
  const inside = (
    <>
      <span>{chip.name}</span>
      <b>{chip.value}</b>
    </>
  );
  if (chip.choices.length === 0) {
    return (
      <span className="chip" title={chip.title}>
        {inside}
      </span>
    );
  }
  return (
    <label className="chip editable" title={chip.title}>
      {inside}
      <Icon name="down" size={12} />
      <select
        aria-label={`${chip.name}: ${chip.value}; ask again with another`}
        value=""
        onChange={(event) => onAsk(event.target.value)}
      >
        <option value="" disabled>
          {chip.value}
        </option>
        {chip.choices.map(({ label, turn }) => (
          <option key={turn} value={turn}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Chips({ answer, onAsk }: { answer: WireAsk; onAsk: (turn: string) => void }) {
  const { data } = useQuery(clustersQuery);
  const chips = chipsOf(answer, data?.clusters.map(({ cluster }) => cluster) ?? []);
  if (chips.length === 0) return null;
  return (
    <div className="chips">
      <span>Read as</span>
      {chips.map((chip) => (
        <ChipView key={chip.name} chip={chip} onAsk={onAsk} />
      ))}
    </div>
  );
}

/** A number with its unit; one that is a piece of a name, a time or a date is none. */
const FIGURE =
  /((?<![\w.:]|\w-)-?\d+(?:,\d{3})*(?:\.\d+)?(?:\s?(?:%|°C|k?W|MW|[KMGT]i?B(?:\/s)?|GPU-hours|hours?|s|ms))?(?![\w-]|[.:]\d))/;

/** A figure, which leads to where it comes from. */
function Figure({ answer, figure }: { answer: WireAsk; figure: string }) {
  for (const table of answer.tables) {
    const row = rowOf(table, figure);
    const to = row === null ? null : sourceOf(answer, table, row);
    if (to === null) continue;
    return (
      <Link to={to} className="figure" label={`${figure}, where it comes from`}>
        <b>{figure}</b>
      </Link>
    );
  }
  return <b>{figure}</b>;
}

/** Figures of a sentence in bold; whole numbers of a time or a name stay as they are. */
function withFigures(answer: WireAsk): ReactNode[] {
  return answer.text.split(FIGURE).map((piece, at) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of one sentence keep their places
    at % 2 === 1 ? <Figure key={at} answer={answer} figure={piece} /> : piece,
  );
}

function Sql({ answer }: { answer: WireAsk }) {
  const { copied, copy } = useCopied();
  if (answer.sql.length === 0) return null;
  return (
    <details className="sql">
      <summary>
        SQL{" "}
        <span>
          {answer.freeSql ? `written by ${answer.model}` : "written by the planner"}, run through the guard
        </span>
      </summary>
      {answer.sql.map((one) => (
        <div key={one.name}>
          <pre>{one.sql}</pre>
          {canCopy() && (
            <button type="button" className="control small" onClick={() => void copy(one.name, one.sql)}>
              {copied === one.name ? "Copied" : "Copy"}
            </button>
          )}
          <a className="link" href={`/ask?way=sql&sql=${encodeURIComponent(one.sql)}`}>
            Open as SQL
          </a>
        </div>
      ))}
    </details>
  );
}

function Figures({ table }: { table: WireAskTable }) {
  return (
    <>
      <RowsTable label={table.name} columns={table.columns} rows={table.rows} height={308} />
      {table.truncated && (
        <p className="panel-note">The table was cut here; a narrower question shows the rest.</p>
      )}
    </>
  );
}

function Suggestions({
  title,
  options,
  onAsk,
}: {
  title: string;
  options: readonly string[];
  onAsk: (question: string) => void;
}) {
  if (options.length === 0) return null;
  return (
    <Panel title={title}>
      <div className="suggestions">
        {options.map((option) => (
          <button key={option} type="button" className="link" onClick={() => onAsk(option)}>
            {option}
          </button>
        ))}
      </div>
    </Panel>
  );
}

const HEADS: Record<string, { title: string; options: string }> = {
  clarify: { title: "Which of these do you mean?", options: "Choose one" },
  refuse: { title: "Not answered", options: "You may ask instead" },
  unanswerable: { title: "This cannot be answered from what is measured", options: "You may ask instead" },
};

export function AnswerView({ answer, onAsk }: { answer: WireAsk; onAsk: (question: string) => void }) {
  const head = HEADS[answer.treatment];
  const [table, ...others] = answer.tables;
  return (
    <>
      <Chips answer={answer} onAsk={onAsk} />
      <div className="ask-body">
        <section className="panel answer" aria-label="Answer" aria-live="polite">
          {head !== undefined && (
            <h2 className="answer-head">
              {answer.treatment === "refuse" ? <Icon name="lock" size={16} /> : <Shape tone="none" />}
              {head.title}
            </h2>
          )}
          <p className="answer-text">{withFigures(answer)}</p>
          {table !== undefined && <AnswerChart table={table} chart={answer.chart} />}
          {[...(table === undefined ? [] : [table]), ...others].map((each) => (
            <Figures key={each.name} table={each} />
          ))}
          <Sql answer={answer} />
        </section>
        <aside className="side" aria-label="About this answer">
          <Suggestions title={head?.options ?? "Then ask"} options={answer.suggestions} onAsk={onAsk} />
          {answer.caveats.length > 0 && (
            <Panel title="Caveats">
              <ul className="caveats">
                {answer.caveats.map((caveat) => (
                  <li key={caveat}>{caveat}</li>
                ))}
              </ul>
            </Panel>
          )}
        </aside>
      </div>
    </>
  );
}
