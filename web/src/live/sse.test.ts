import { describe, expect, it } from "vitest";
import { createParser } from "./sse";

const TEXT = 'retry: 2000\n\n: alive\n\nevent: delta\nid: 7.ab\ndata: {"at":1}\n\nevent: end\ndata: {}\n\n';

describe("createParser", () => {
  it.each([1, 2, 3, 7, 1000])("finds the same events in pieces of %d", (size) => {
    const parse = createParser();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...parse(TEXT.slice(at, at + size)));
    expect(found).toEqual([
      { name: "delta", id: "7.ab", data: '{"at":1}' },
      { name: "end", id: "", data: "{}" },
    ]);
  });
});
