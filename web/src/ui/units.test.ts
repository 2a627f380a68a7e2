import { describe, expect, it } from "vitest";
import { formatTicks, formatValue, isShare, scaleFor } from "./units";

const NBSP = "\u00a0";

describe("formatValue", () => {
  it.each([
    [0.943, "gpu_utilization_ratio", "1", `94${NBSP}%`],
    [1, "gpu_utilization_ratio", "1", `100${NBSP}%`],
    [80 * 2 ** 30, "gpu_memory_total_bytes", "By", `80${NBSP}GiB`],
    [74.43 * 2 ** 30, "gpu_memory_used_bytes", "By", `74.4${NBSP}GiB`],
    [0, "gpu_memory_used_bytes", "By", `0${NBSP}B`],
    [430.4, "gpu_power_watts", "W", `430${NBSP}W`],
    [1_051_200, "gpu_power_watts", "W", `1.05${NBSP}MW`],
    [1.37e9, "gpu_sm_clock_hertz", "Hz", `1.37${NBSP}GHz`],
    [86.2, "gpu_temperature_celsius", "Cel", `86${NBSP}°C`],
    [206e9, "gpu_nvlink_receive_bytes_per_second", "By/s", `206${NBSP}GB/s`],
    [1204, "gpu_pcie_replay_total", "1", "1,204"],
    [3, "gpu_performance_state", "P-state", `3${NBSP}P-state`],
  ])("%d of %s in %s is %s", (value, metric, unit, text) => {
    expect(formatValue(value, metric, unit)).toBe(text);
  });

  it("shows a dash for what is missing, never a zero", () => {
    for (const missing of [null, undefined, Number.NaN]) {
      expect(formatValue(missing, "gpu_power_watts", "W")).toBe("–");
    }
  });
});

describe("formatTicks", () => {
  it("shares one prefix among all ticks", () => {
    expect(formatTicks([0, 0.5, 1], "gpu_utilization_ratio", "1")).toEqual(["0", "50", "100"]);
    expect(formatTicks([0, 40 * 2 ** 30, 80 * 2 ** 30], "gpu_memory_used_bytes", "By")).toEqual([
      "0",
      "40",
      "80",
    ]);
    expect(formatTicks([1.2e9, 2e9], "gpu_sm_clock_hertz", "Hz")).toEqual(["1.2", "2.0"]);
  });
});

describe("scaleFor", () => {
  it("keeps degrees and seconds without prefixes", () => {
    expect(scaleFor("x_celsius", "Cel", 5000).divide).toBe(1);
    expect(scaleFor("x_seconds", "s", 5000).divide).toBe(1);
  });
  it("knows a share by the unit and the name together", () => {
    expect(isShare("gpu_utilization_ratio", "1")).toBe(true);
    expect(isShare("gpu_pcie_replay_total", "1")).toBe(false);
  });
});
