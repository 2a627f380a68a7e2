/** What is missing and why; and the ledger, which says what became of everything that was told. */

import { useQuery } from "@tanstack/react-query";
import { type GapsRequest, type Stories, storiesQuery } from "../../api/custody";
import { useNames } from "../../panels/names";
import { type Tile, Tiles } from "../../ui/facts";
import { Page } from "../../ui/page";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Picks } from "../../ui/picks";
import { Segment } from "../../ui/segment";
import { NO_HEALTH } from "../../ui/top_bar";
import { countOf, formatNumber } from "../../ui/units";
import { useView, type View } from "../../ui/view";
import { LedgerPanel } from "./ledger_panel";
import { reasonWords } from "./reason";
import { StoryStrip } from "./story_strip";
import { StoryTable } from "./story_table";
import "./gaps.css";

const LIMIT = 2000;
const KINDS = [
  { value: "gpu", label: "GPUs" },
  { value: "node", label: "Hosts" },
  { value: "fabric_port", label: "Fabric" },
];
const SHOWN = [
  { value: "findings", label: "Findings" },
  { value: "", label: "All reasons" },
];
const VIEWS = [
  { value: "gaps", label: "Gaps" },
  { value: "ledger", label: "Ledger" },
];

function askedOf(view: View): GapsRequest {
  const at = (name: string) => view.params.get(name);
  const reason = at("reason") ?? "findings";
  return {
    kind: at("kind") ?? "gpu",
    window: view.window,
    limit: LIMIT,
    ...(at("cluster") === null ? {} : { cluster: at("cluster") ?? "" }),
    ...(at("host") === null ? {} : { host: at("host") ?? "" }),
    ...(reason === "all" ? {} : { reason }),
  };
}

function tilesOf(found: Stories | undefined): Tile[] {
  const names = ["Open now", "Stories", "Missing samples", "Reasons"] as const;
  if (found === undefined) return names.map((name) => ({ name, value: "–" }));
  const open = found.stories.filter((story) => story.end === null && !story.isExpected).length;
  const reasons = Object.entries(found.reasons).sort((a, b) => b[1] - a[1]);
  const others = reasons.slice(1, 3).map(([reason, count]) => `${reasonWords(reason)} ${count}`);
  return [
    {
      name: names[0],
      value: formatNumber(open),
      than: open === 0 ? "nothing is missing" : "still missing",
    },
    { name: names[1], value: formatNumber(found.total), than: "in this window" },
    {
      name: names[2],
      value: formatNumber(found.missing),
      than: found.shed === 0 ? "none declared lost" : `${formatNumber(found.shed)} declared lost`,
    },
    {
      name: names[3],
      value: reasonWords(reasons[0]?.[0] ?? "none"),
      than: others.join(", "),
    },
  ];
}

function Gaps({ view }: { view: View }) {
  const asked = askedOf(view);
  const query = useQuery(storiesQuery(asked));
  const names = useNames(query.data !== undefined);
  const found = query.data;
  return (
    <>
      <Tiles label="Gaps in this window" tiles={tilesOf(found)} />
      <Panel
        title="Stories"
        sub={found === undefined ? "" : `${countOf(found.total, "gap")}, alike ones told together`}
        tools={<Broken query={query} />}
      >
        <div className="filters">
          <Segment
            label="of what"
            choices={KINDS}
            value={asked.kind}
            onChoose={(kind) => view.set({ kind: kind === "gpu" ? undefined : kind })}
          />
          <Segment
            label="which reasons"
            choices={SHOWN}
            value={asked.reason ?? ""}
            onChoose={(reason) => view.set({ reason: reason === "findings" ? undefined : "all" })}
          />
          <Picks
            picks={(["cluster", "host"] as const).flatMap((name) => {
              const value = asked[name];
              return value === undefined ? [] : [{ name, value }];
            })}
            onDrop={(name) => view.set({ [name]: undefined })}
          />
        </div>
        <Answered query={query} waitsFor="the gaps" height={280}>
          {({ stories }) => (
            <>
              <StoryStrip stories={stories} view={view} names={names} />
              <StoryTable stories={stories} view={view} names={names} />
            </>
          )}
        </Answered>
      </Panel>
    </>
  );
}

export function GapsPage() {
  const view = useView("1h");
  const shown = view.params.get("view") ?? "gaps";
  return (
    <Page title="Gaps" view={view} health={NO_HEALTH} up="/">
      <div className="say">
        <h1>Gaps and ledger</h1>
        <p className="verdict-line">
          {shown === "ledger"
            ? "What every collector told, and what became of it, minute by minute."
            : "What should be there and is not, with its reason."}
        </p>
        <span className="push">
          <Segment
            label="show"
            choices={VIEWS}
            value={shown}
            onChoose={(next) => view.set({ view: next === "gaps" ? undefined : next })}
          />
        </span>
      </div>
      {shown === "ledger" ? <LedgerPanel view={view} /> : <Gaps view={view} />}
    </Page>
  );
}
