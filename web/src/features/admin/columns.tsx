/** The columns of every list of Admin. */

import type {
  WireAudit,
  WireGrants,
  WireLetterCounts,
  WireLetterPage,
  WireMaintenance,
  WireTenants,
  WireTokens,
} from "../../api/wire";
import { StatusWord } from "../../ui/icon";
import type { Column } from "../../ui/table_sort";
import { formatClock, formatDay } from "../../ui/times";
import { formatNumber } from "../../ui/units";

type Token = WireTokens["tokens"][number];
type Grant = WireGrants["grants"][number];
type Tenant = WireTenants["tenants"][number];
type Entry = WireAudit["entries"][number];
type Letter = WireLetterPage["letters"][number];
type Count = WireLetterCounts["reasons"][number];
type Planned = WireMaintenance["windows"][number];

function say(time: string | null): string {
  if (time === null) return "–";
  const ms = Date.parse(time);
  return `${formatDay(ms)} ${formatClock(ms)}`;
}

function text<T>(
  key: string,
  label: string,
  width: string,
  value: (row: T) => string,
  wide = false,
): Column<T> {
  return { key, label, width, wide, cell: (row) => value(row) || "–", sortBy: (row) => value(row) || null };
}

function time<T>(key: string, label: string, value: (row: T) => string | null, wide = true): Column<T> {
  return { key, label, width: "124px", wide, cell: (row) => say(value(row)), sortBy: value };
}

function count<T>(key: string, label: string, value: (row: T) => number): Column<T> {
  return { key, label, width: "88px", numeric: true, cell: (row) => formatNumber(value(row)), sortBy: value };
}

function Standing({ revoked, expires }: { revoked: string | null; expires: string | null }) {
  if (revoked !== null) return <StatusWord tone="none" word="revoked" />;
  if (expires !== null && Date.parse(expires) < Date.now()) return <StatusWord tone="none" word="expired" />;
  return <StatusWord tone="ok" word="valid" />;
}

function listed(names: readonly string[] | null | undefined): string {
  if (names === null || names === undefined) return "all";
  return names.length === 0 ? "none" : names.join(", ");
}

export const TOKEN_COLUMNS: readonly Column<Token>[] = [
  text("name", "Name", "minmax(120px, 1.2fr)", (token) => token.name),
  text("role", "Role", "88px", (token) => token.role),
  text("tenant", "Tenant", "minmax(88px, 1fr)", (token) => token.tenantId, true),
  text("cluster", "Cluster", "minmax(72px, .8fr)", (token) => token.clusterId, true),
  text("subject", "Subject", "minmax(120px, 1.4fr)", (token) => token.subject, true),
  time("created", "Created, UTC", (token) => token.created),
  time("expires", "Expires", (token) => token.expires),
  {
    key: "state",
    label: "State",
    width: "88px",
    cell: (token) => <Standing revoked={token.revoked} expires={token.expires} />,
  },
];

export const GRANT_COLUMNS: readonly Column<Grant>[] = [
  text("subject", "Subject", "minmax(140px, 1.4fr)", (grant) => grant.subject),
  text("tenant", "Tenant", "minmax(88px, 1fr)", (grant) => grant.tenantId),
  text("clusters", "Clusters", "minmax(88px, 1fr)", (grant) => listed(grant.clusters), true),
  text("teams", "Teams", "minmax(72px, 1fr)", (grant) => listed(grant.teams), true),
  text("jobs", "Jobs", "minmax(72px, 1fr)", (grant) => listed(grant.jobs), true),
  text("models", "Models", "minmax(72px, 1fr)", (grant) => listed(grant.modelIds), true),
  text(
    "denied",
    "Denied metrics",
    "minmax(88px, 1fr)",
    (grant) => (grant.deniedMetrics ?? []).join(", "),
    true,
  ),
  {
    key: "state",
    label: "State",
    width: "88px",
    cell: (grant) => <Standing revoked={grant.revoked} expires={null} />,
  },
];

export const TENANT_COLUMNS: readonly Column<Tenant>[] = [
  text("tenant", "Tenant", "minmax(120px, 1fr)", (tenant) => tenant.tenantId),
  text("name", "Name", "minmax(120px, 2fr)", (tenant) => tenant.name),
  time("created", "Created, UTC", (tenant) => tenant.created),
];

export const AUDIT_COLUMNS: readonly Column<Entry>[] = [
  time("time", "Time, UTC", (entry) => entry.time, false),
  text("subject", "Who", "minmax(120px, 1fr)", (entry) => entry.subject),
  text("action", "What", "minmax(96px, .8fr)", (entry) => entry.action),
  {
    key: "outcome",
    label: "Outcome",
    width: "112px",
    wide: true,
    cell: (entry) => <StatusWord tone={entry.outcome === "ok" ? "ok" : "warn"} word={entry.outcome} />,
    sortBy: (entry) => entry.outcome,
  },
  {
    key: "detail",
    label: "Detail",
    width: "minmax(160px, 2.4fr)",
    wide: true,
    cell: (entry) => <span title={entry.detail}>{entry.detail}</span>,
  },
];

export const COUNT_COLUMNS: readonly Column<Count>[] = [
  text("code", "Reason", "minmax(140px, 1fr)", (reason) => reason.code),
  text("stage", "Stage", "minmax(96px, 1fr)", (reason) => reason.stage, true),
  count("letters", "Letters", (reason) => reason.letters),
  count("rows", "Rows", (reason) => reason.rows),
  count("replayed", "Sent again", (reason) => reason.replayed),
  time("newest", "Newest, UTC", (reason) => reason.newestTime),
];

export const LETTER_COLUMNS: readonly Column<Letter>[] = [
  time("time", "Taken in, UTC", (letter) => letter.ingestTime, false),
  text("code", "Reason", "minmax(112px, 1fr)", (letter) => letter.code),
  text("host", "Host", "minmax(96px, 1fr)", (letter) => letter.hostId || letter.collectorId, true),
  text("metric", "Metric", "minmax(96px, 1fr)", (letter) => letter.metric, true),
  count("rows", "Rows", (letter) => letter.rows),
  {
    key: "message",
    label: "Why",
    width: "minmax(160px, 2fr)",
    wide: true,
    cell: (letter) => <span title={letter.message}>{letter.message}</span>,
  },
];

export const MAINTENANCE_COLUMNS: readonly Column<Planned>[] = [
  text("where", "Where", "minmax(120px, 1fr)", (window) => window.hostId ?? window.clusterId),
  time("start", "From, UTC", (window) => window.start),
  time("until", "Until", (window) => window.until, false),
  text("reason", "Reason", "minmax(140px, 2fr)", (window) => window.reason),
  text("by", "Announced by", "minmax(96px, 1fr)", (window) => window.announcedBy, true),
  {
    key: "state",
    label: "State",
    width: "96px",
    cell: (window) => (
      <StatusWord tone={window.active ? "warn" : "none"} word={window.active ? "under way" : "not now"} />
    ),
  },
];
