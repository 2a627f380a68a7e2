import { describe, expect, it } from "vitest";
import type { WireMetric } from "../../api/wire";
import { legalAggregates, questionOf, toPromql } from "./question";

function metric(name: string, type: string, aggregates: string[]): WireMetric {
  const rest = {
    kind: "gpu",
    unit: "1",
    rollup: "level",
    priority: 0,
    description: "",
    aliases: [],
    labels: [],
  };
  return { name, type, aggregates, ...rest, minimum: null, maximum: null, values: {}, bitmask: false };
}

describe("questionOf", () => {
  it("reads an address", () => {
    const asked = questionOf(new URLSearchParams("metrics=a,b,a&groupBy=host&cluster=cedar&vs=7d"));
    expect(asked.metrics).toEqual(["a", "b"]);
    expect(asked.filters).toEqual({ cluster: "cedar" });
    expect(asked.earlierMs).toBe(7 * 86_400_000);
  });
  it("asks something where an address says nothing", () => {
    expect(questionOf(new URLSearchParams()).metrics).toEqual(["gpu_utilization_ratio"]);
  });
});

describe("legalAggregates", () => {
  it("keeps what all metrics allow", () => {
    const gauge = metric("a", "gauge", ["avg", "min", "last"]);
    const counter = metric("b", "counter", ["rate", "last"]);
    expect(legalAggregates([gauge, counter])).toEqual(["last"]);
    expect(legalAggregates([gauge, undefined])).toEqual(["avg", "min", "last"]);
  });
});

describe("toPromql", () => {
  it("says the same question", () => {
    const asked = questionOf(new URLSearchParams("groupBy=gpu&host=h1,h2&aggregate=max"));
    expect(toPromql(asked, metric("m", "gauge", []))).toBe('max by (gpu) (m{host=~"h1|h2"})');
    expect(toPromql({ ...asked, groupBy: "total", filters: {} }, metric("c", "counter", []))).toBe(
      "max(rate(c[5m]))",
    );
  });
});
