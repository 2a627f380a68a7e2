/**
 * Keep one stream open: resumed by the id of its last event, tried again ever later, let go while nobody sees it.
 *
 * A stream of which nothing is heard for long is taken for lost. After a sleep of this machine it begins anew, for what
 * it held is too old to go on from. Where an intermediary lets no stream through, it is tried only now and then.
 */

import { createParser, type StreamEvent } from "./sse";

export type StreamState = "idle" | "opening" | "live" | "waiting" | "blocked" | "hidden";

export type Opener = (lastEventId: string, signal: AbortSignal) => Promise<Response>;

export interface Handlers {
  onEvent: (event: StreamEvent) => void;
  onState: (state: StreamState) => void;
}

export const SILENT_MS = 12_000;
export const SLEPT_MS = 15_000;
export const BLOCKED_RETRY_MS = 60_000;
const WATCH_MS = 1000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 30_000;
const HIDDEN_AFTER_MS = 5000;

/** Answers that a later try does not change. */
const LASTING = new Set([400, 401, 403, 404, 405, 406, 422, 501]);

function isStream(response: Response): boolean {
  return response.ok && (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
}

export class Connection {
  #state: StreamState = "idle";
  #lastId = "";
  #failures = 0;
  #heardAt = 0;
  #watchedAt = 0;
  #abort: AbortController | null = null;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #hiding: ReturnType<typeof setTimeout> | undefined;
  #watch: ReturnType<typeof setInterval> | undefined;
  readonly #open: Opener;
  readonly #handlers: Handlers;
  readonly #random: () => number;

  constructor(open: Opener, handlers: Handlers, random: () => number = Math.random) {
    this.#open = open;
    this.#handlers = handlers;
    this.#random = random;
  }

  start(): void {
    if (this.#watch !== undefined) return;
    this.#watchedAt = Date.now();
    this.#watch = setInterval(() => this.#look(), WATCH_MS);
    this.#connect();
  }

  /** Let all go; may be called twice. */
  stop(): void {
    clearInterval(this.#watch);
    this.#watch = undefined;
    clearTimeout(this.#hiding);
    this.#close();
    this.#set("idle");
  }

  /** Say whether the page is seen; the stream goes a moment after it is not, and comes back where it was left. */
  seen(isSeen: boolean): void {
    clearTimeout(this.#hiding);
    if (this.#watch === undefined) return;
    if (!isSeen) {
      this.#hiding = setTimeout(() => {
        this.#close();
        this.#set("hidden");
      }, HIDDEN_AFTER_MS);
    } else if (this.#state === "hidden" || this.#state === "waiting") {
      this.#watchedAt = Date.now();
      this.#connect();
    }
  }

  /** Forget what was held, so that everything comes again. */
  restart(): void {
    this.#lastId = "";
    this.#connect();
  }

  #set(state: StreamState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#handlers.onState(state);
  }

  #close(): void {
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Look once a second whether this machine slept, and whether the stream still says something. */
  #look(): void {
    const now = Date.now();
    const slept = now - this.#watchedAt > SLEPT_MS;
    this.#watchedAt = now;
    if (this.#state === "hidden") return;
    if (slept) this.restart();
    else if (this.#abort !== null && now - this.#heardAt > SILENT_MS) {
      const isBlocked = this.#state === "opening" && this.#lastId === "";
      this.#close();
      if (isBlocked) this.#later("blocked", BLOCKED_RETRY_MS);
      else this.#lost();
    }
  }

  #connect(): void {
    this.#close();
    this.#heardAt = Date.now();
    const abort = new AbortController();
    this.#abort = abort;
    if (this.#state === "idle" || this.#state === "hidden") this.#set("opening");
    this.#read(abort).catch(() => {
      if (this.#abort === abort) this.#lost();
    });
  }

  async #read(abort: AbortController): Promise<void> {
    const response = await this.#open(this.#lastId, abort.signal);
    if (this.#abort !== abort) return;
    if (!isStream(response) || response.body === null) {
      await response.body?.cancel();
      if (response.ok || LASTING.has(response.status)) this.#later("blocked", BLOCKED_RETRY_MS);
      else this.#lost();
      return;
    }
    const parse = createParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (this.#abort !== abort) return;
      if (done) break;
      this.#heardAt = Date.now();
      for (const event of parse(value)) this.#take(event);
    }
    this.#lost();
  }

  #take(event: StreamEvent): void {
    if (event.name === "end") return;
    this.#failures = 0;
    this.#handlers.onEvent(event);
    if (event.id !== "") this.#lastId = event.id;
    this.#set("live");
  }

  #lost(): void {
    const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#failures);
    // A break that the first try heals is not worth a word.
    const state = this.#failures === 0 && this.#state === "live" ? "live" : "waiting";
    this.#failures += 1;
    this.#later(state, longest * (0.5 + this.#random() / 2));
  }

  #later(state: StreamState, ms: number): void {
    this.#close();
    this.#set(state);
    this.#retry = setTimeout(() => this.#connect(), ms);
  }
}
