/** Ask in words; what was read, the answer, its figures, its SQL and its limits stand beside each other. */

import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useEffect, useState } from "react";
import { askQuery } from "../../api/ask";
import { Icon } from "../../ui/icon";
import { Page } from "../../ui/page";
import { Answered } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { NO_HEALTH } from "../../ui/top_bar";
import { useView, type View } from "../../ui/view";
import { AnswerView } from "./answer_view";
import { SqlView } from "./sql_view";
import "./ask.css";

const EXAMPLES = [
  "Which GPU was hottest in the last hour?",
  "What was the average GPU utilization of each cluster in the last hour?",
  "Which 5 hosts used the most power in the last 30 minutes?",
  "How many Xid errors were there today?",
];
const WAYS = [
  { value: "words", label: "Words" },
  { value: "sql", label: "SQL" },
];
const TURNS_MAXIMUM = 10;

/** The turns before the newest, oldest first, as the address carries them. */
function turnsOf(view: View): string[] {
  return view.params.getAll("q").filter(Boolean).slice(-TURNS_MAXIMUM);
}

interface QuestionProps {
  asked: string;
  onAsk: (question: string) => void;
}

function QuestionBox({ asked, onAsk }: QuestionProps) {
  const [text, setText] = useState(asked);
  useEffect(() => setText(asked), [asked]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() !== "") onAsk(text.trim());
  };
  return (
    <form className="question" onSubmit={submit}>
      <Icon name="ask" size={18} />
      <input
        type="text"
        aria-label="Your question"
        placeholder="Ask about GPUs, hosts, jobs, power, errors, over any time"
        autoComplete="off"
        maxLength={1000}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" className="control main" disabled={text.trim() === ""}>
        Ask
      </button>
    </form>
  );
}

function Examples({ onAsk }: { onAsk: (question: string) => void }) {
  return (
    <section className="panel examples" aria-label="Questions to begin with">
      <h2>Questions to begin with</h2>
      {EXAMPLES.map((example) => (
        <button key={example} type="button" className="link" onClick={() => onAsk(example)}>
          {example}
        </button>
      ))}
      <p>
        Every figure of an answer comes from rows that you may see. The SQL that was run stands below each
        answer.
      </p>
    </section>
  );
}

function Words({ view }: { view: View }) {
  const turns = turnsOf(view);
  const question = turns.at(-1) ?? "";
  const context = turns.slice(0, -1);
  const query = useQuery(askQuery(question, context));
  const ask = (next: string, isFollowUp: boolean) => {
    const params = new URLSearchParams();
    for (const turn of isFollowUp ? [...turns, next].slice(-TURNS_MAXIMUM) : [next]) params.append("q", turn);
    view.go(`/ask?${params.toString()}`);
  };
  return (
    <>
      <QuestionBox asked={question} onAsk={(next) => ask(next, false)} />
      {question === "" ? (
        <Examples onAsk={(next) => ask(next, false)} />
      ) : (
        <>
          {context.length > 0 && (
            <ol className="turns" aria-label="asked before">
              {context.map((turn) => (
                <li key={turn}>{turn}</li>
              ))}
            </ol>
          )}
          <Answered query={query} waitsFor="the answer" height={280}>
            {(answer) => <AnswerView answer={answer} onAsk={(next) => ask(next, true)} />}
          </Answered>
        </>
      )}
    </>
  );
}

export function AskPage() {
  const view = useView("1h");
  const way = view.params.get("way") ?? "words";
  return (
    <Page title="Ask" view={view} health={NO_HEALTH} up="/">
      <div className="say">
        <h1>Ask</h1>
        <span className="push">
          <Segment
            label="ask in"
            choices={WAYS}
            value={way}
            onChoose={(value) => view.set({ way: value === "words" ? undefined : value })}
          />
        </span>
      </div>
      {way === "sql" ? <SqlView view={view} /> : <Words view={view} />}
    </Page>
  );
}
