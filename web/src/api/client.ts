/** Ask the api and give its answer, or an error that says whether asking again may help. */

import { takeEarly } from "./early";
import type { WireError } from "./wire";

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint: string;

  constructor(status: number, code: string, message: string, hint = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.hint = hint;
  }

  /** True where the same request may yet succeed. */
  get isRetryable(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  /** True where no answer came at all. */
  get isDisconnected(): boolean {
    return this.status === 0;
  }
}

export interface Ask {
  method?: "GET" | "POST" | "DELETE";
  params?: Record<string, string | number | undefined>;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Address of a request, with its parameters in the order given. */
export function addressOf(path: string, params: Ask["params"] = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

async function send(path: string, ask: Ask): Promise<Response> {
  const init: RequestInit = { method: ask.method ?? "GET", credentials: "same-origin" };
  if (ask.signal !== undefined) init.signal = ask.signal;
  if (ask.body !== undefined) {
    init.body = JSON.stringify(ask.body);
    init.headers = { "content-type": "application/json" };
  }
  const address = addressOf(path, ask.params);
  const early = init.method === "GET" ? await takeEarly(address) : undefined;
  if (early) return early;
  try {
    return await fetch(address, init);
  } catch (cause) {
    if (ask.signal?.aborted === true) throw cause;
    throw new ApiError(0, "disconnected", "Secondsight does not answer");
  }
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  const { error } = parsed(text);
  const message = error?.message ?? `the request was answered with status ${response.status}`;
  return new ApiError(
    response.status,
    error?.code ?? `status_${response.status}`,
    message,
    error?.hint ?? "",
  );
}

function parsed(text: string): WireError {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** Answer of the api as JSON. Raises ApiError. */
export async function request<T>(path: string, ask: Ask = {}): Promise<T> {
  const response = await send(path, ask);
  if (!response.ok) throw await refusal(response);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

/** All pages of a list that names the next one by a cursor. Raises ApiError. */
export async function pagesOf<T extends { nextCursor: string | null }>(
  path: string,
  params: Ask["params"],
  signal: AbortSignal,
): Promise<{ all: T[]; last: T }> {
  const all: T[] = [];
  let cursor: string | undefined;
  for (;;) {
    const page = await request<T>(path, { params: { ...params, cursor }, signal });
    all.push(page);
    if (page.nextCursor === null) return { all, last: page };
    cursor = page.nextCursor;
  }
}
