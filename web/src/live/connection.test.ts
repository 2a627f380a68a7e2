import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Connection, type StreamState } from "./connection";

/** A server whose streams are written to by hand. */
class Server {
  readonly asked: string[] = [];
  status = 200;
  type = "text/event-stream";
  isUp = true;
  #writer: ReadableStreamDefaultController<Uint8Array> | null = null;

  readonly open = async (lastId: string, signal: AbortSignal): Promise<Response> => {
    this.asked.push(lastId);
    if (!this.isUp) throw new Error("refused");
    const body = new ReadableStream<Uint8Array>({
      start: (writer) => {
        this.#writer = writer;
        signal.addEventListener("abort", () => writer.error(new Error("aborted")));
      },
    });
    return new Response(body, { status: this.status, headers: { "content-type": this.type } });
  };

  async tell(id: number): Promise<void> {
    this.#writer?.enqueue(new TextEncoder().encode(`event: delta\nid: ${id}\ndata: {}\n\n`));
    await vi.advanceTimersByTimeAsync(10);
  }

  async break(): Promise<void> {
    this.#writer?.close();
    await vi.advanceTimersByTimeAsync(10);
  }
}

function connected(server: Server) {
  const states: StreamState[] = [];
  const ids: string[] = [];
  const connection = new Connection(
    server.open,
    { onEvent: ({ id }) => ids.push(id), onState: (state) => states.push(state) },
    () => 1,
  );
  connection.start();
  return { connection, states, ids };
}

describe("Connection", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("goes on after the last event when it breaks, without a word", async () => {
    const server = new Server();
    const { connection, states, ids } = connected(server);
    await server.tell(1);
    await server.break();
    await vi.advanceTimersByTimeAsync(1000);
    await server.tell(2);
    expect(server.asked).toEqual(["", "1"]);
    expect([states, ids]).toEqual([
      ["opening", "live"],
      ["1", "2"],
    ]);
    connection.stop();
    expect(vi.getTimerCount()).toBe(0);
  });

  it("tries ever later while nothing answers", async () => {
    const server = new Server();
    const { connection, states } = connected(server);
    await server.tell(1);
    server.isUp = false;
    await server.break();
    await vi.advanceTimersByTimeAsync(1000 + 2000 + 4000 + 100);
    expect(server.asked).toHaveLength(4);
    await vi.advanceTimersByTimeAsync(7000);
    expect(server.asked).toHaveLength(4);
    server.isUp = true;
    await vi.advanceTimersByTimeAsync(1000);
    await server.tell(2);
    expect(server.asked.at(-1)).toBe("1");
    expect(states).toEqual(["opening", "live", "waiting", "live"]);
    connection.stop();
  });

  it("takes a stream that says nothing for lost, and one that never speaks for blocked", async () => {
    const server = new Server();
    const { connection, states } = connected(server);
    await vi.advanceTimersByTimeAsync(14_000);
    expect(states).toEqual(["opening", "blocked"]);
    await vi.advanceTimersByTimeAsync(60_000);
    await server.tell(1);
    await vi.advanceTimersByTimeAsync(14_000);
    expect(server.asked).toEqual(["", "", "1"]);
    connection.stop();
  });

  it.each([404, 403, 200])("is blocked by what is no stream: %d", async (status) => {
    const server = Object.assign(new Server(), { status, type: "text/html" });
    const { connection, states } = connected(server);
    await vi.advanceTimersByTimeAsync(100);
    expect(states).toEqual(["opening", "blocked"]);
    connection.stop();
  });

  it("begins anew after a sleep", async () => {
    const server = new Server();
    const { connection } = connected(server);
    await server.tell(1);
    vi.setSystemTime(Date.now() + 3_600_000);
    await vi.advanceTimersByTimeAsync(1000);
    expect(server.asked).toEqual(["", ""]);
    connection.stop();
  });

  it("rests while the page is not seen, and goes on where it was", async () => {
    const server = new Server();
    const { connection, states } = connected(server);
    await server.tell(1);
    connection.seen(false);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(states.at(-1)).toBe("hidden");
    expect(server.asked).toHaveLength(1);
    connection.seen(true);
    await server.tell(2);
    expect(server.asked).toEqual(["", "1"]);
    expect(states.at(-1)).toBe("live");
    connection.stop();
  });
});
