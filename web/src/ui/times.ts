/** Turn instants and durations into what people read. All instants are epoch milliseconds, shown in UTC. */

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"] as const;

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** "10:42:17" */
export function formatClock(ms: number): string {
  return new Date(ms).toISOString().slice(11, 19);
}

/** "29 Nov" */
export function formatDay(ms: number): string {
  const date = new Date(ms);
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()] ?? ""}`;
}

/** "10:42:17" on the day that is now, "29 Nov 10:42:17" before it. */
export function formatMoment(ms: number, now: number): string {
  return formatDay(ms) === formatDay(now) && now - ms < 86_400_000
    ? formatClock(ms)
    : `${formatDay(ms)} ${formatClock(ms)}`;
}

/** A width of samples as people write it: "1s" is "1 s", "5m" is "5 min". */
export function formatResolution(text: string): string {
  return text.replace(/^(\d+)(ms|s|m|h|d)$/, (_, count: string, unit: string) =>
    unit === "m" ? `${count} min` : `${count} ${unit}`,
  );
}

/** "29 Nov 2026 10:15:00 – 10:45:00"; the day is said twice only where it changes. */
export function formatRange(fromMs: number, toMs: number): string {
  const year = new Date(fromMs).getUTCFullYear();
  const start = `${formatDay(fromMs)} ${year} ${formatClock(fromMs)}`;
  const sameDay = formatDay(fromMs) === formatDay(toMs);
  return `${start} – ${sameDay ? "" : `${formatDay(toMs)} `}${formatClock(toMs)}`;
}

/** "29 Nov 10:15:00 – 10:45:00", for narrow screens. */
export function formatShortRange(fromMs: number, toMs: number): string {
  return formatRange(fromMs, toMs).replace(/ \d{4} /, " ");
}

/** "3.1 s", "4 min 12 s", "2 h 5 min", "3 d 4 h". */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, ms / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return joined(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** The same in its largest unit alone, for narrow columns: "3.1 s", "12 min", "2 h". */
export function formatAge(ms: number): string {
  return formatDuration(ms).split(" ").slice(0, 2).join(" ");
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** "10:42" or, inside a minute, "10:42:17"; "29 Nov" at midnight of long ranges. */
export function formatTick(ms: number, stepMs: number): string {
  const date = new Date(ms);
  const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  if (stepMs >= 86_400_000) return formatDay(ms);
  return stepMs < 60_000 ? `${clock}:${two(date.getUTCSeconds())}` : clock;
}
