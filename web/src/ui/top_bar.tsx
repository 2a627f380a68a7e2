/** What one looks at: which GPUs, which time, whether it follows, how fresh and complete it is. */

import { type RefObject, useId, useState } from "react";
import { Icon, Shape, type Tone } from "./icon";
import { formatClock, formatDuration, formatRange, formatShortRange } from "./times";

/** What the page's answers say about themselves. */
export interface Health {
  ageMs: number | null;
  /** Above this age the data counts as stale. */
  staleMs: number;
  completeThrough: number | null;
  coverageRatio: number | null;
}

export interface TopBarProps {
  title: string;
  find: string;
  findRef: RefObject<HTMLInputElement | null>;
  /** Whether the page holds the list that the box filters; elsewhere it leads there, and phones leave it out. */
  listHere: boolean;
  onFind: (text: string) => void;
  onFindEnter: (text: string) => void;
  span: { from: number; to: number };
  /** Address of what is on the screen, with absolute times. */
  link: string;
  live: boolean;
  /** How far a paused page is behind the present. */
  behindMs: number;
  onToggleLive: () => void;
  health: Health;
}

const COPIED_MS = 2000;
const COMPLETE_RATIO = 0.999;
const LACKING_RATIO = 0.9;

function coverageTone(ratio: number): Tone {
  if (ratio >= COMPLETE_RATIO) return "ok";
  return ratio >= LACKING_RATIO ? "warn" : "bad";
}

function formatCoverage(ratio: number): string {
  const percent = Math.floor(ratio * 1000) / 10;
  return `${percent === 100 ? "100" : percent.toFixed(1)} %`;
}

function Find({ find, findRef, listHere, onFind, onFindEnter }: TopBarProps) {
  const id = useId();
  return (
    <search className={listHere ? "find" : "find wide"}>
      <label htmlFor={id}>
        <Icon name="search" size={14} />
        <span className="hidden">Find GPUs</span>
      </label>
      <input
        id={id}
        ref={findRef}
        type="search"
        value={find}
        placeholder="Find GPUs"
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onFind(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") onFindEnter(event.currentTarget.value);
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </search>
  );
}

function LiveButton({ live, behindMs, onToggleLive }: TopBarProps) {
  return (
    <button
      type="button"
      className={live ? "control live" : "control"}
      aria-pressed={live}
      onClick={onToggleLive}
    >
      <Icon name={live ? "pause" : "play"} size={14} />
      {live ? "Live" : "Paused"}
      {!live && behindMs > 0 && <small className="wide">{formatDuration(behindMs)} behind</small>}
    </button>
  );
}

/** Browsers give the clipboard to secure pages alone; elsewhere there is no button. */
function CopyLink({ link }: { link: string }) {
  const [copied, setCopied] = useState(false);
  if (!("clipboard" in navigator)) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(new URL(link, location.href).href);
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  };
  return (
    <button type="button" className="control quiet copy wide" onClick={() => void copy()}>
      <Icon name="link" size={14} />
      <span aria-live="polite">{copied ? "Copied" : "Copy link"}</span>
    </button>
  );
}

function Coverage({ ratio }: { ratio: number | null }) {
  if (ratio === null) return null;
  return (
    <span className="fact">
      <Shape tone={coverageTone(ratio)} />
      coverage <b>{formatCoverage(ratio)}</b>
    </span>
  );
}

function Fresh({ health }: { health: Health }) {
  if (health.ageMs === null) return null;
  const stale = health.ageMs > health.staleMs;
  return (
    <span className={stale ? "fact stale" : "fact"}>
      {stale ? "old" : "fresh"} <b>{formatDuration(health.ageMs)}</b>
    </span>
  );
}

function Health({ health }: { health: Health }) {
  return (
    <div className="facts">
      <span className="wide">
        <Fresh health={health} />
      </span>
      {health.completeThrough !== null && (
        <span className="fact wide">
          complete through <b>{formatClock(health.completeThrough)}</b>
        </span>
      )}
      <Coverage ratio={health.coverageRatio} />
    </div>
  );
}

export function TopBar(props: TopBarProps) {
  const { from, to } = props.span;
  return (
    <header className="top">
      <div className="top-row">
        <span className="top-title narrow">{props.title}</span>
        <Find {...props} />
        <span className="control time wide" role="group" aria-label="time range">
          <Icon name="calendar" size={14} />
          {formatRange(from, to)} <small>UTC</small>
        </span>
        <span className="push">
          <Health health={props.health} />
        </span>
        <LiveButton {...props} />
        <CopyLink link={props.link} />
      </div>
      <div className="top-row narrow">
        <Icon name="calendar" size={12} />
        <span>{formatShortRange(from, to)} UTC</span>
        <span className="push">
          <Fresh health={props.health} />
        </span>
      </div>
    </header>
  );
}
