/** The range on time: what it is, and what it may be. */

import { type FormEvent, useState } from "react";
import { formatInstant, RANGES, rangeOf } from "../model/window";
import { Icon } from "./icon";
import { Popover } from "./popover";
import { formatRange, formatShortRange } from "./times";
import type { View } from "./view";

/** "2026-11-29T10:15:00", as a field for an instant holds it; shown and read in UTC. */
function fieldOf(ms: number): string {
  return formatInstant(ms).slice(0, 19);
}

function Exact({ view, onDone }: { view: View; onDone: () => void }) {
  const [from, setFrom] = useState(fieldOf(view.span.from));
  const [to, setTo] = useState(fieldOf(view.span.to));
  const start = Date.parse(`${from}Z`);
  const end = Date.parse(`${to}Z`);
  const isRange = start < end;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isRange) return;
    view.actions.zoom([start, end]);
    onDone();
  };
  return (
    <form className="exact" onSubmit={submit}>
      <label>
        From
        <input
          type="datetime-local"
          step="1"
          value={from}
          onChange={(event) => setFrom(event.target.value)}
        />
      </label>
      <label>
        To
        <input type="datetime-local" step="1" value={to} onChange={(event) => setTo(event.target.value)} />
      </label>
      <p>{isRange ? "Times are UTC." : "The range has to end after it begins."}</p>
      <button type="submit" className="control" disabled={!isRange}>
        Show this range
      </button>
    </form>
  );
}

export function TimePicker({ view }: { view: View }) {
  const { from, to } = view.span;
  const chosen = rangeOf(view.window);
  return (
    <Popover
      className="control time"
      label={
        <>
          <Icon name="calendar" size={14} />
          <span className="hidden">time range </span>
          <span className="wide">{formatRange(from, to)}</span>
          <span className="narrow">{formatShortRange(from, to)}</span>
          <small>UTC</small>
        </>
      }
    >
      {(close) => (
        <div className="ranges">
          <div className="range-list">
            {RANGES.map((range) => (
              <button
                key={range.name}
                type="button"
                aria-pressed={range.name === chosen}
                onClick={() => {
                  view.actions.choose(range.name);
                  close();
                }}
              >
                Last {range.label}
              </button>
            ))}
          </div>
          <Exact view={view} onDone={close} />
        </div>
      )}
    </Popover>
  );
}
