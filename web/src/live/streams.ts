/** The streams that panels watch: one for each place, shared by all who watch it, apart from what is asked for. */

import { useCallback, useSyncExternalStore } from "react";
import { addressOf } from "../api/client";
import { knownLayout } from "../api/map";
import { afterDelta, type Board, fromSnapshot, type WireBoard } from "./board";
import { Connection, type StreamState } from "./connection";
import type { StreamEvent } from "./sse";

export interface Live {
  state: StreamState;
  /** The newest second; null before the first. */
  board: Board | null;
}

const LINGER_MS = 3000;
const NOTHING: Live = { state: "idle", board: null };

class Stream {
  live: Live = NOTHING;
  readonly #connection: Connection;
  readonly #listeners = new Set<() => void>();
  readonly #onEmpty: () => void;
  #leaving: ReturnType<typeof setTimeout> | undefined;

  constructor(cluster: string, onEmpty: () => void) {
    this.#onEmpty = onEmpty;
    const open = (lastId: string, signal: AbortSignal) =>
      fetch(addressOf("/v1/live", { coding: "bytes", cluster, layout: knownLayout(cluster) }), {
        credentials: "same-origin",
        headers: lastId === "" ? {} : { "last-event-id": lastId },
        signal,
      });
    this.#connection = new Connection(open, {
      onEvent: (event) => this.#take(event),
      onState: (state) => this.#tell({ ...this.live, state }),
    });
  }

  readonly #see = () => this.#connection.seen(!document.hidden);

  subscribe(notify: () => void): () => void {
    clearTimeout(this.#leaving);
    this.#listeners.add(notify);
    if (this.#listeners.size === 1) {
      document.addEventListener("visibilitychange", this.#see);
      this.#connection.start();
    }
    return () => {
      this.#listeners.delete(notify);
      if (this.#listeners.size === 0) this.#leaving = setTimeout(() => this.#leave(), LINGER_MS);
    };
  }

  #leave(): void {
    document.removeEventListener("visibilitychange", this.#see);
    this.#connection.stop();
    this.#onEmpty();
  }

  #take(event: StreamEvent): void {
    const wire = JSON.parse(event.data) as WireBoard;
    const { board } = this.live;
    const next = event.name === "snapshot" || board === null ? fromSnapshot(wire) : afterDelta(board, wire);
    if (next === null) this.#connection.restart();
    else this.#tell({ ...this.live, board: next });
  }

  #tell(live: Live): void {
    this.live = live;
    for (const notify of this.#listeners) notify();
    for (const notify of watchers) notify();
  }
}

const streams = new Map<string, Stream>();
const watchers = new Set<() => void>();

function streamOf(cluster: string): Stream {
  const known = streams.get(cluster);
  if (known !== undefined) return known;
  const made = new Stream(cluster, () => {
    if (streams.get(cluster) === made) streams.delete(cluster);
  });
  streams.set(cluster, made);
  return made;
}

/** The newest second of a place, for as long as `isWanted`; empty for the whole fleet. */
export function useLive(cluster: string, isWanted: boolean): Live {
  const subscribe = useCallback(
    (notify: () => void) => (isWanted ? streamOf(cluster).subscribe(notify) : () => undefined),
    [cluster, isWanted],
  );
  return useSyncExternalStore(subscribe, () =>
    isWanted ? (streams.get(cluster)?.live ?? NOTHING) : NOTHING,
  );
}

/** True while the newest second comes by itself, or is about to; else one has to ask for it. */
export function isStreaming({ state, board }: Live): boolean {
  return state === "live" || (board !== null && (state === "opening" || state === "hidden"));
}

/** What some stream of the page held last when it was lost; null while none is. */
function lostAt(): number | null {
  for (const { live } of streams.values()) {
    if (live.state === "waiting" && live.board !== null) return live.board.at;
  }
  return null;
}

function watch(notify: () => void): () => void {
  watchers.add(notify);
  return () => watchers.delete(notify);
}

/** The second since which nothing comes, while a stream of the page is lost. */
export function useLostSince(): number | null {
  return useSyncExternalStore(watch, lostAt);
}
