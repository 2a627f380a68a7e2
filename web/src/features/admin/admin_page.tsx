/** Administration: tenants, tokens, grants, what was read, what was refused, what is planned. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import {
  auditQuery,
  grantsQuery,
  letterCountsQuery,
  lettersQuery,
  maintenanceQuery,
  tenantsQuery,
  tokensQuery,
} from "../../api/admin";
import { boundsOf } from "../../api/events";
import { Page } from "../../ui/page";
import { Answered, type Answering, Broken, Panel } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Table } from "../../ui/table";
import { type Column, parseSort, type Sort } from "../../ui/table_sort";
import { NO_HEALTH } from "../../ui/top_bar";
import { useView, type View } from "../../ui/view";
import {
  AUDIT_COLUMNS,
  COUNT_COLUMNS,
  GRANT_COLUMNS,
  LETTER_COLUMNS,
  MAINTENANCE_COLUMNS,
  TENANT_COLUMNS,
  TOKEN_COLUMNS,
} from "./columns";

const TABS = [
  { value: "tokens", label: "Tokens" },
  { value: "grants", label: "Grants" },
  { value: "tenants", label: "Tenants" },
  { value: "audit", label: "Audit" },
  { value: "letters", label: "Dead letters" },
  { value: "maintenance", label: "Planned work" },
];
const OUTCOMES = [
  { value: "", label: "All" },
  { value: "ok", label: "Allowed" },
  { value: "refused", label: "Refused" },
];
const AS_CAME: Sort = { key: "", descending: false };

interface ListProps<A, T> {
  title: string;
  view: View;
  query: Answering<A>;
  rowsOf: (answer: A) => readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  none: string;
  tools?: ReactNode;
  height?: number | "page";
}

function List<A, T>({
  title,
  view,
  query,
  rowsOf,
  columns,
  keyOf,
  none,
  tools,
  height = "page",
}: ListProps<A, T>) {
  return (
    <Panel
      title={title}
      sub={query.data === undefined ? "" : rowsOf(query.data).length}
      className="children-panel"
      tools={
        <>
          <Broken query={query} />
          {tools}
        </>
      }
    >
      <Answered query={query} waitsFor={title.toLowerCase()} height={240}>
        {(answer) => (
          <Table
            label={title}
            rows={rowsOf(answer)}
            columns={columns}
            keyOf={keyOf}
            sort={parseSort(view.params.get("sort"), AS_CAME)}
            onSort={(sort) => view.set({ sort })}
            height={height}
            none={none}
          />
        )}
      </Answered>
    </Panel>
  );
}

function Tokens({ view }: { view: View }) {
  return (
    <List
      title="Tokens"
      view={view}
      query={useQuery(tokensQuery)}
      rowsOf={({ tokens }) => tokens}
      columns={TOKEN_COLUMNS}
      keyOf={(token) => token.tokenId}
      none="No token is on record. secondsight tokens create makes one."
    />
  );
}

function Grants({ view }: { view: View }) {
  return (
    <List
      title="Grants"
      view={view}
      query={useQuery(grantsQuery)}
      rowsOf={({ grants }) => grants}
      columns={GRANT_COLUMNS}
      keyOf={(grant) => String(grant.grantId)}
      none="No grant is on record. secondsight grants create gives one."
    />
  );
}

function Tenants({ view }: { view: View }) {
  return (
    <List
      title="Tenants"
      view={view}
      query={useQuery(tenantsQuery)}
      rowsOf={({ tenants }) => tenants}
      columns={TENANT_COLUMNS}
      keyOf={(tenant) => tenant.tenantId}
      none="No tenant is on record."
    />
  );
}

function Audit({ view }: { view: View }) {
  const outcome = view.params.get("outcome") ?? "";
  return (
    <List
      title="Audit"
      view={view}
      query={useQuery(auditQuery(boundsOf(view.window), outcome))}
      rowsOf={({ entries }) => entries}
      columns={AUDIT_COLUMNS}
      keyOf={(entry) => String(entry.auditId)}
      none="Nothing was read or changed in this window."
      tools={
        <Segment
          label="outcome"
          choices={OUTCOMES}
          value={outcome}
          onChoose={(value) => view.set({ outcome: value })}
        />
      }
    />
  );
}

function Letters({ view }: { view: View }) {
  const bounds = boundsOf(view.window);
  return (
    <>
      <List
        title="Reasons"
        view={view}
        query={useQuery(letterCountsQuery(bounds))}
        rowsOf={({ reasons }) => reasons}
        columns={COUNT_COLUMNS}
        keyOf={(reason) => `${reason.stage} ${reason.code}`}
        none="Nothing was refused in this window."
        height={224}
      />
      <List
        title="Dead letters"
        view={view}
        query={useQuery(lettersQuery(bounds))}
        rowsOf={({ letters }) => letters}
        columns={LETTER_COLUMNS}
        keyOf={(letter) => letter.id}
        none="No letter was kept in this window. secondsight deadletters shows and sends them again."
      />
    </>
  );
}

function Maintenance({ view }: { view: View }) {
  return (
    <List
      title="Planned work"
      view={view}
      query={useQuery(maintenanceQuery)}
      rowsOf={({ windows }) => windows}
      columns={MAINTENANCE_COLUMNS}
      keyOf={(window) => window.windowId}
      none="No work is planned. secondsight maintenance start puts some on record, so that its gaps are no findings."
    />
  );
}

function Body({ tab, view }: { tab: string; view: View }) {
  switch (tab) {
    case "grants":
      return <Grants view={view} />;
    case "tenants":
      return <Tenants view={view} />;
    case "audit":
      return <Audit view={view} />;
    case "letters":
      return <Letters view={view} />;
    case "maintenance":
      return <Maintenance view={view} />;
    default:
      return <Tokens view={view} />;
  }
}

export function AdminPage() {
  const view = useView("24h");
  const tab = view.params.get("tab") ?? "tokens";
  return (
    <Page title="Admin" view={view} health={NO_HEALTH} up="/">
      <div className="say">
        <h1>Admin</h1>
        <Segment
          label="show"
          choices={TABS}
          value={tab}
          onChoose={(next) => view.set({ tab: next === "tokens" ? undefined : next, sort: undefined })}
        />
      </div>
      <Body tab={tab} view={view} />
    </Page>
  );
}
