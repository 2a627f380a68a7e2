/** Line icons of 16 px and the shapes of status. */

const PATHS = {
  fleet: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  gpus: "M2 4h12v8H2zM5 4V2M8 4V2M11 4V2M5 14v-2M8 14v-2M11 14v-2M6 7h4v2H6z",
  search: "M7 12A5 5 0 107 2a5 5 0 000 10zM11 11l3.5 3.5",
  calendar: "M2 3.500h12V14H2zM2 7h12M5 1.500v3M11 1.500v3",
  pause: "M5.500 3v10M10.500 3v10",
  play: "M4.500 3l8 5-8 5z",
  right: "M6 4l4 4-4 4",
  left: "M10 4L6 8l4 4",
  down: "M4 6l4 4 4-4",
  up: "M4 10l4-4 4 4",
  retry: "M13 8a5 5 0 11-1.500-3.500M13 2v3h-3",
  lock: "M3.500 7h9v7h-9zM5.500 7V5a2.500 2.500 0 015 0v2",
  clock: "M8 14A6 6 0 108 2a6 6 0 000 12zM8 5v3.500l2.500 1.500",
  plug: "M5 2v4M11 2v4M3.500 6h9v2a4.500 4.500 0 01-9 0zM8 12.500V15",
  link: "M6.500 9.500l3-3M7 4.500l1.500-1.500a3.200 3.200 0 014.500 4.500L11.500 9M9 11.500L7.500 13A3.200 3.200 0 013 8.500L4.500 7",
  sun: "M8 11a3 3 0 100-6 3 3 0 000 6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13 9.500A5.500 5.500 0 016.500 3 5.500 5.500 0 1013 9.500z",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  leave: "M6 3H3v10h3M10 5l3 3-3 3M13 8H6",
  pulse: "M1 8h3l2-5 4 10 2-5h3",
  clusters: "M2 2.500h12v3H2zM2 6.500h12v3H2zM2 10.500h12v3H2zM4.500 4h.1M4.500 8h.1M4.500 12h.1",
  jobs: "M2 4h8M2 8h12M2 12h6",
  models: "M8 1.500l6 3.200v6.600l-6 3.200-6-3.200V4.700zM2 4.700l6 3.300 6-3.300M8 8v6.500",
  explore: "M2 2v12h12M4.500 10.500l3-4 2.500 2 3.500-5",
  ask: "M2 3h12v8H8l-3 3v-3H2z",
  events: "M4 14V2M4 2.500h8.500L10 5.500l2.500 3H4",
  gaps: "M1 8h4M11 8h4M5 4.500v7M11 4.500v7M8 6v4",
  collectors: "M8 2v7M5 6.500L8 9.500l3-3M2 10v3.500h12V10",
  catalogue: "M3 2h10v12H3zM5.500 5h5M5.500 8h5M5.500 11h3",
  admin: "M8 8a3 3 0 100-6 3 3 0 000 6zM2.500 14.500a5.500 5.500 0 0111 0",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  copy: "M5.500 5.500h8v8h-8zM3.500 10.500h-1v-8h8v1",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      className="icon"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

export type Tone = "ok" | "warn" | "bad" | "none";

const SHAPES: Record<Tone, string> = {
  ok: "M5 1a4 4 0 110 8 4 4 0 010-8z",
  warn: "M5 .8l4.600 8.400H.4z",
  bad: "M1 1h8v8H1z",
  none: "M.5 4h9v2.200h-9z",
};

export function Shape({ tone }: { tone: Tone }) {
  return (
    <svg className={`shape ${tone}`} width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
      <path d={SHAPES[tone]} fill="currentColor" />
    </svg>
  );
}

/** A status by shape, word and colour. */
export function StatusWord({ tone, word }: { tone: Tone; word: string }) {
  return (
    <span className={`status ${tone}`}>
      <Shape tone={tone} />
      <span>{word}</span>
    </span>
  );
}
