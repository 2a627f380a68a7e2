/** Say what is asked: metrics, aggregate, grouping, place, comparison. Each choice is in the address. */

import { type FormEvent, useId, useMemo, useState } from "react";
import type { Catalog } from "../../api/fleet";
import { Icon } from "../../ui/icon";
import { Picks } from "../../ui/picks";
import { Popover } from "../../ui/popover";
import type { View } from "../../ui/view";
import { EARLIER, FILTERS, GROUPS, legalAggregates, type Question } from "./question";

const METRICS_SHOWN = 60;

export interface BuilderProps {
  view: View;
  catalog: Catalog;
  question: Question;
}

interface ChoiceProps {
  label: string;
  value: string;
  choices: readonly { value: string; label: string }[];
  onChoose: (value: string) => void;
}

function Choice({ label, value, choices, onChoose }: ChoiceProps) {
  const id = useId();
  return (
    <label htmlFor={id} className="choice">
      <span>{label}</span>
      <select id={id} value={value} onChange={(event) => onChoose(event.target.value)}>
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value}>
            {choice.label}
          </option>
        ))}
      </select>
    </label>
  );
}

function MetricList({
  catalog,
  taken,
  onPick,
}: {
  catalog: Catalog;
  taken: readonly string[];
  onPick: (metric: string) => void;
}) {
  const [text, setText] = useState("");
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return [...catalog.values()].filter((metric) => {
      const all = [metric.name, metric.description, ...metric.aliases].join(" ").toLowerCase();
      return metric.aggregates.length > 0 && words.every((word) => all.includes(word));
    });
  }, [catalog, text]);
  return (
    <div className="metric-picker">
      <input
        // biome-ignore lint/a11y/noAutofocus: the list was opened to search in it
        autoFocus
        className="field"
        type="text"
        aria-label="Find a metric"
        placeholder="Find a metric"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <div className="menu">
        {found.slice(0, METRICS_SHOWN).map((metric) => (
          <button
            key={metric.name}
            type="button"
            disabled={taken.includes(metric.name)}
            onClick={() => onPick(metric.name)}
            title={metric.description}
          >
            {metric.name}
            <small>{metric.unit}</small>
          </button>
        ))}
        {found.length === 0 && <p className="panel-note">No metric has that in its name.</p>}
      </div>
    </div>
  );
}

function AddFilter({ view }: { view: View }) {
  const id = useId();
  const [name, setName] = useState<string>(FILTERS[0]);
  const [value, setValue] = useState("");
  const add = (event: FormEvent) => {
    event.preventDefault();
    if (value.trim() === "") return;
    view.set({ [name]: value.trim() });
    setValue("");
  };
  return (
    <form className="choice" onSubmit={add}>
      <span>only</span>
      <select aria-label="filter by" value={name} onChange={(event) => setName(event.target.value)}>
        {FILTERS.map((each) => (
          <option key={each} value={each}>
            {each === "gpuModel" ? "product" : each}
          </option>
        ))}
      </select>
      <label htmlFor={id} className="hidden">
        name to filter by
      </label>
      <input
        id={id}
        type="text"
        placeholder="name, or names by commas"
        value={value}
        onChange={(event) => setValue(event.target.value)}
      />
      <button type="submit" aria-label="add the filter" disabled={value.trim() === ""}>
        <Icon name="plus" size={12} />
      </button>
    </form>
  );
}

export function Builder({ view, catalog, question }: BuilderProps) {
  const { metrics, aggregate, groupBy, filters } = question;
  const legal = legalAggregates(metrics.map((name) => catalog.get(name)));
  const vs = EARLIER.find(({ ms }) => ms === question.earlierMs)?.value ?? "";
  const setMetrics = (names: readonly string[]) =>
    view.set({ metrics: names.join(","), aggregate: undefined });
  return (
    <section className="panel builder" aria-label="What is asked">
      <div className="builder-line">
        <ul className="picks" aria-label="metrics">
          {metrics.map((name) => (
            <li key={name}>
              <span>
                <b>{name}</b>
              </span>
              <button
                type="button"
                aria-label={`leave out ${name}`}
                onClick={() => setMetrics(metrics.filter((each) => each !== name))}
              >
                <Icon name="close" size={12} />
              </button>
            </li>
          ))}
        </ul>
        <Popover
          name="add a metric"
          className="control small"
          label={
            <>
              <Icon name="plus" size={12} />
              metric
            </>
          }
        >
          {(close) => (
            <MetricList
              catalog={catalog}
              taken={metrics}
              onPick={(name) => {
                setMetrics([...metrics, name]);
                close();
              }}
            />
          )}
        </Popover>
      </div>
      <div className="builder-line">
        <Choice
          label="as"
          value={aggregate}
          choices={[
            { value: "", label: "usual aggregate" },
            ...legal.map((each) => ({ value: each, label: each })),
          ]}
          onChoose={(value) => view.set({ aggregate: value })}
        />
        <Choice
          label="by"
          value={groupBy}
          choices={GROUPS}
          onChoose={(value) => view.set({ groupBy: value === "total" ? undefined : value || "," })}
        />
        <Choice label="against" value={vs} choices={EARLIER} onChoose={(value) => view.set({ vs: value })} />
        <AddFilter view={view} />
        <Picks
          picks={Object.entries(filters).map(([name, value]) => ({ name, value }))}
          onDrop={(name) => view.set({ [name]: undefined })}
        />
      </div>
    </section>
  );
}
