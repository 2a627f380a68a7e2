/** The states of a panel: loading, empty, stale, partial, error, disconnected. */

import { type ReactNode, useEffect, useState } from "react";
import { Icon, Shape } from "./icon";
import { useNow } from "./now";
import { formatDuration } from "./times";

const OUTLINE_AFTER_MS = 150;
const EXPLAIN_AFTER_MS = 2000;

function useElapsed(): number {
  const [elapsed, setElapsed] = useState(0);
  useEffect(() => {
    const timers = [OUTLINE_AFTER_MS, EXPLAIN_AFTER_MS].map((ms) => setTimeout(() => setElapsed(ms), ms));
    return () => timers.forEach(clearTimeout);
  }, []);
  return elapsed;
}

const ROW_PX = 28;
const ROWS_MAXIMUM = 8;
/** Widths of the outlines of rows, in percent, so that they read as words. */
const ROW_WIDTHS = [62, 48, 71, 55] as const;

function Outlines({ height }: { height: number }) {
  const count = Math.min(ROWS_MAXIMUM, Math.floor((height - 16) / ROW_PX));
  return (
    <span className="skeleton-rows">
      {Array.from({ length: count }, (_, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: outlines keep their places
        <i key={at} style={{ width: `${ROW_WIDTHS[at % ROW_WIDTHS.length]}%` }} />
      ))}
    </span>
  );
}

export interface SkeletonProps {
  height: number;
  waitsFor: string;
  /** Outlines rows instead of a plot. */
  rows?: boolean;
  /** Several outlines of one answer: only one says what it waits for. */
  quiet?: boolean;
}

/** The outline of what will be there; a fast answer shows nothing of it. */
export function Skeleton({ height, waitsFor, rows, quiet }: SkeletonProps) {
  const elapsed = useElapsed();
  return (
    <div className="skeleton" style={{ height }} role="status" aria-label={`loading ${waitsFor}`}>
      {elapsed >= OUTLINE_AFTER_MS &&
        (rows === true ? <Outlines height={height} /> : <span className="skeleton-band" />)}
      {elapsed >= EXPLAIN_AFTER_MS && quiet !== true && (
        <span className="skeleton-words">waiting for {waitsFor}</span>
      )}
    </div>
  );
}

export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children: ReactNode;
  command?: string;
}) {
  return (
    <div className="state">
      <h2>{title}</h2>
      <p>{children}</p>
      {command !== undefined && <code>{command}</code>}
    </div>
  );
}

export interface Failure {
  message: string;
  code: string;
  hint: string;
  isRetryable: boolean;
  /** A grant is missing; the hint says what may be seen instead. */
  isForbidden: boolean;
}

/** Messages of the api begin small, as parts of longer ones do. */
function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function ErrorState({ failure, onRetry }: { failure: Failure; onRetry: () => void }) {
  return (
    <div className="state" role="alert">
      <h2>
        {failure.isForbidden ? <Icon name="lock" size={14} /> : <Shape tone="bad" />}
        {sentence(failure.message)}
      </h2>
      {failure.hint !== "" && <p>{sentence(failure.hint)}</p>}
      <code>{failure.code}</code>
      {failure.isRetryable && (
        <button type="button" className="control" onClick={onRetry}>
          <Icon name="retry" size={14} />
          Retry
        </button>
      )}
    </div>
  );
}

export function Badge({
  tone,
  title,
  children,
}: {
  tone?: "warn" | "bad" | undefined;
  title?: string | undefined;
  children: ReactNode;
}) {
  return (
    <span className={tone === undefined ? "badge" : `badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** How old the newest sample is, said only where it is older than it should be. */
export function StaleBadge({ ageMs, limitMs }: { ageMs: number | null; limitMs: number }) {
  if (ageMs === null || ageMs <= limitMs) return null;
  return (
    <Badge tone="warn" title="The newest sample is older than it should be; the last data stays.">
      <Icon name="clock" size={12} />
      {formatDuration(ageMs)} old
    </Badge>
  );
}

/** Counts down to the next try; the picture stays as it was. */
export function DisconnectedBadge({
  nextTryAt,
  onTry,
  reason,
}: {
  nextTryAt: number;
  onTry: () => void;
  reason?: string;
}) {
  const now = useNow();
  const seconds = Math.max(0, Math.ceil((nextTryAt - now) / 1000));
  return (
    <span className="disconnected" role="status">
      <Badge tone="warn" title={reason}>
        <Icon name="plug" size={12} />
        {seconds > 0 ? `reconnects in ${seconds} s` : "reconnecting"}
      </Badge>
      <button type="button" className="control small" onClick={onTry}>
        <Icon name="retry" size={12} />
        Now
      </button>
    </span>
  );
}
