import { describe, expect, it } from "vitest";
import { detailOf } from "./event_words";

const event = { metric: "gpu_link_finding", meaning: "NVLink replays", host: "cedar-0001" };

describe("detailOf", () => {
  it("leaves out whom the event befell, which stands beside it", () => {
    const message = "GPU GPU-0b60 of host cedar-0001: 12 replays in 30 s";
    expect(detailOf({ ...event, attributes: { message } })).toBe("12 replays in 30 s");
    expect(detailOf({ ...event, host: "", attributes: { message } })).toBe(message);
  });
  it("tells what the event carries where it has no message", () => {
    expect(detailOf({ ...event, attributes: { version: "0.1.0" } })).toBe("version 0.1.0");
  });
});
