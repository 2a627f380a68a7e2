/** A panel: its head, which does not move between states, and its body, which says the state it is in. */

import { type ReactNode, useEffect, useRef } from "react";
import { toFailure } from "./failure";
import { DisconnectedBadge, ErrorState, Skeleton } from "./states";

const RETRY_MS = 5000;

/** What a panel needs to know of a request; the answers of TanStack Query fit. */
export interface Answering<T> {
  data: T | undefined;
  error: Error | null;
  errorUpdatedAt: number;
  refetch: () => unknown;
}

export interface PanelProps {
  title: string;
  sub?: ReactNode;
  /** Badges and controls at the right of the head. */
  tools?: ReactNode;
  className?: string;
  children: ReactNode;
}

export function Panel({ title, sub, tools, className, children }: PanelProps) {
  return (
    <section className={className === undefined ? "panel" : `panel ${className}`} aria-label={title}>
      <div className="panel-head">
        <h2>{title}</h2>
        {sub !== undefined && <span className="sub">{sub}</span>}
        {tools !== undefined && <span className="tools">{tools}</span>}
      </div>
      {children}
    </section>
  );
}

/** Why there is no answer; it stays while the same is asked for again, so that nothing jumps between two tries. */
export function useFailure({ data, error, errorUpdatedAt }: Answering<unknown>): Error | null {
  const last = useRef<Error | null>(null);
  const isTriedAgain = error === null && data === undefined && errorUpdatedAt > 0;
  const failure = isTriedAgain ? last.current : error;
  useEffect(() => {
    last.current = failure;
  });
  return failure;
}

export interface AnsweredProps<T> {
  query: Answering<T>;
  waitsFor: string;
  height: number;
  children: (data: T) => ReactNode;
}

/** The body of a panel once its answer is there; until then its outline, or why there is none. */
export function Answered<T>({ query, waitsFor, height, children }: AnsweredProps<T>) {
  const failure = useFailure(query);
  if (query.data !== undefined) return children(query.data);
  if (failure !== null) {
    return <ErrorState failure={toFailure(failure)} onRetry={() => void query.refetch()} />;
  }
  return <Skeleton height={height} waitsFor={waitsFor} rows />;
}

/** Says that the newest request failed while older data is kept. */
export function Broken({ query }: { query: Answering<unknown> }) {
  if (query.error === null || query.data === undefined) return null;
  return (
    <DisconnectedBadge
      nextTryAt={query.errorUpdatedAt + RETRY_MS}
      onTry={() => void query.refetch()}
      reason={toFailure(query.error).message}
    />
  );
}
