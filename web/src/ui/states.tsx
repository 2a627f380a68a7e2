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

export interface SkeletonProps {
  height: number;
  waitsFor: string;
  /** Several outlines of one answer: only one says what it waits for. */
  quiet?: boolean;
}

/** The outline of what will be there; a fast answer shows nothing of it. */
export function Skeleton({ height, waitsFor, quiet }: SkeletonProps) {
  const elapsed = useElapsed();
  return (
    <div className="skeleton" style={{ height }} role="status" aria-label={`loading ${waitsFor}`}>
      {elapsed >= OUTLINE_AFTER_MS && <span className="skeleton-band" />}
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

export function ErrorState({ failure, onRetry }: { failure: Failure; onRetry: () => void }) {
  return (
    <div className="state" role="alert">
      <h2>
        {failure.isForbidden ? <Icon name="lock" size={14} /> : <Shape tone="bad" />}
        {failure.message}
      </h2>
      {failure.hint !== "" && <p>{failure.hint}</p>}
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
