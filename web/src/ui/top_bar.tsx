/** What one looks at: which time, whether it follows, how fresh and complete it is; and the way to anywhere else. */

import { useLostSince } from "../live/streams";
import { canCopy, useCopied } from "./copy_as";
import { Icon, Shape, type Tone } from "./icon";
import { useKeys } from "./keys";
import { openSearch } from "./search_event";
import { TimePicker } from "./time_picker";
import { formatClock, formatDuration } from "./times";
import type { View } from "./view";

/** What the page's answers say about themselves. */
export interface Health {
  ageMs: number | null;
  /** Above this age the data counts as stale. */
  staleMs: number;
  completeThrough: number | null;
  coverageRatio: number | null;
}

/** A page without samples of its own, such as a catalogue. */
export const NO_HEALTH: Health = {
  ageMs: null,
  staleMs: Number.POSITIVE_INFINITY,
  completeThrough: null,
  coverageRatio: null,
};

export interface TopBarProps {
  title: string;
  view: View;
  /** Address of what is on the screen, with absolute times. */
  link: string;
  health: Health;
}

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

function SearchButton() {
  return (
    <button
      type="button"
      className="find"
      onClick={openSearch}
      aria-label="Search or run a command"
      aria-keyshortcuts="/ Control+K"
    >
      <Icon name="search" size={14} />
      <span>Search or run a command</span>
      <kbd aria-hidden="true">/</kbd>
    </button>
  );
}

function LiveButton({ view }: { view: View }) {
  const { live } = view.window;
  const behindMs = live ? 0 : view.now - view.span.to;
  return (
    <button
      type="button"
      className={live ? "control live" : "control"}
      aria-pressed={live}
      onClick={view.actions.toggleLive}
      title={live ? "The window follows the newest data" : "The window stands still"}
    >
      <Icon name={live ? "pause" : "play"} size={14} />
      {live ? "Live" : "Paused"}
      {behindMs > 0 && <small className="wide">{formatDuration(behindMs)} behind</small>}
    </button>
  );
}

function CopyLink({ link }: { link: string }) {
  const { copied, copy } = useCopied();
  const run = () => void copy("link", new URL(link, location.href).href);
  useKeys({ y: () => canCopy() && run() });
  if (!canCopy()) return null;
  return (
    <button type="button" className="control quiet copy wide" onClick={run}>
      <Icon name="link" size={14} />
      <span aria-live="polite">{copied === null ? "Copy link" : "Copied"}</span>
    </button>
  );
}

function Coverage({ ratio }: { ratio: number | null }) {
  if (ratio === null) return null;
  return (
    <span className="fact" title="Samples stored of those expected">
      <Shape tone={coverageTone(ratio)} />
      coverage <b>{formatCoverage(ratio)}</b>
    </span>
  );
}

/** Said once when the stream breaks for longer than a moment: since when, not for how long. */
function Lost({ since }: { since: number }) {
  return (
    <span
      className="fact stale lost"
      title="The live stream is lost and tried again by itself; what is shown stays"
    >
      <Icon name="plug" size={12} /> reconnecting, stale since <b>{formatClock(since)}</b>
    </span>
  );
}

function Fresh({ health }: { health: Health }) {
  const since = useLostSince();
  return (
    <>
      <span role="status">{since !== null && <Lost since={since} />}</span>
      {since === null && <Age health={health} />}
    </>
  );
}

function Age({ health }: { health: Health }) {
  if (health.ageMs === null) return null;
  const stale = health.ageMs > health.staleMs;
  return (
    <span className={stale ? "fact stale" : "fact"} title="Age of the newest sample">
      {stale ? "old" : "fresh"} <b>{formatDuration(health.ageMs)}</b>
    </span>
  );
}

function Facts({ health }: { health: Health }) {
  return (
    <div className="facts">
      <span className="wide">
        <Fresh health={health} />
      </span>
      {health.completeThrough !== null && (
        <span className="fact wide" title="Every sample before this time has come">
          complete through <b>{formatClock(health.completeThrough)}</b>
        </span>
      )}
      <Coverage ratio={health.coverageRatio} />
    </div>
  );
}

export function TopBar({ title, view, link, health }: TopBarProps) {
  return (
    <header className="top">
      <div className="top-row">
        <span className="top-title narrow">{title}</span>
        <SearchButton />
        <span className="wide">
          <TimePicker view={view} />
        </span>
        <LiveButton view={view} />
        <span className="push">
          <Facts health={health} />
        </span>
        <CopyLink link={link} />
      </div>
      <div className="top-row narrow">
        <TimePicker view={view} />
        <span className="push">
          <Fresh health={health} />
        </span>
      </div>
    </header>
  );
}
