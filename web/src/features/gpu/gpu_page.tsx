/** One GPU, by the second. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { eventsQuery } from "../../api/events";
import { catalogQuery, type Gpu, gpuQuery } from "../../api/fleet";
import { ageNow, platformOffset } from "../../api/meta";
import { type Answer, pollEvery, telemetryAddress, telemetryQuery } from "../../api/series";
import { parseResolution, resolutionFor, type Window } from "../../model/window";
import { healthOf } from "../../panels/health";
import { gpuPath, hostPath } from "../../panels/ladder";
import { TimelinePanel } from "../../panels/rows/timeline_panel";
import { CopyAs, toCurl } from "../../ui/copy_as";
import { keysBeside } from "../../ui/crumbs";
import { Page } from "../../ui/page";
import { useFailure } from "../../ui/panel";
import { keepWindow, toggleTable, useView, type View, withOffset } from "../../ui/view";
import { Dossier } from "./dossier";
import { GpuHeader, titleOf, Verdict } from "./gpu_header";
import { Peers, usePeers } from "./peers";
import { METRICS, THEMES, THROTTLE } from "./themes";
import "./gpu.css";

const DEFAULT_RANGE = "15m";
const STALE_MS = 15_000;
const EVENTS = 300;
const LANES = [THROTTLE];

function askedOf(gpuId: string, window: Window) {
  const lengthMs = window.live ? window.lengthMs : window.to - window.from;
  return { gpuId, metrics: METRICS, window, resolution: resolutionFor(lengthMs) };
}

function useTelemetry(gpuId: string, window: Window) {
  const client = useQueryClient();
  return useQuery({
    ...telemetryQuery(askedOf(gpuId, window), client),
    refetchInterval: (query) => {
      if (!window.live) return false;
      const resolution = parseResolution(query.state.data?.meta.resolution ?? "");
      return pollEvery(resolution, query.state.status === "error");
    },
  });
}

/** The platform's clock minus this one, as the newest answer tells. */
function offsetOf(answer: Answer | undefined): number {
  return answer === undefined ? 0 : platformOffset(answer.meta, answer.columns.ts.at(-1));
}

function forms(id: string, view: View) {
  const address = (format: string) => telemetryAddress(askedOf(id, view.window), view.span, format);
  return [
    { name: "curl, JSON", text: () => toCurl(address("columns")) },
    { name: "curl, CSV", text: () => toCurl(address("csv")) },
    {
      name: "PromQL",
      text: () => METRICS.map((metric) => `${metric}{gpu="${id}"}`).join("\n"),
    },
    { name: "id of the GPU", text: () => id },
  ];
}

export function GpuPage({ id }: { id: string }) {
  const plain = useView(DEFAULT_RANGE);
  const gpu = useQuery(gpuQuery(id));
  const telemetry = useTelemetry(id, plain.window);
  const { data: catalog } = useQuery(catalogQuery);
  const events = useQuery(eventsQuery({ gpu: id, window: plain.window, limit: EVENTS }));
  const answer = telemetry.data;
  const isUnknown = useFailure(gpu) !== null && gpu.data === undefined;
  const view = withOffset(plain, offsetOf(answer));
  const peers = usePeers(gpu.data?.host);
  const places = peers.map((peer) => ({
    name: `GPU ${peer.index ?? peer.id.slice(-6)}`,
    to: keepWindow(view, gpuPath(peer.id), { view: view.params.get("view") ?? undefined }),
  }));
  const siblings = { kind: "GPUs of this host", places, current: placeName(peers, id, gpu.data) };
  const ageMs = answer === undefined ? null : ageNow(answer.meta, view.now);
  const up = gpu.data === undefined ? "/gpus" : keepWindow(view, hostPath(gpu.data.host));
  return (
    <Page
      title={titleOf(gpu.data, id)}
      shortTitle={placeName(peers, id, gpu.data)}
      view={view}
      health={{
        ...healthOf(answer?.meta, view.now, STALE_MS),
        ageMs: view.window.live ? ageMs : null,
      }}
      up={up}
      keys={{
        t: () => toggleTable(view),
        ...keysBeside(siblings),
      }}
      keyHelp={[
        ["T", "charts or table"],
        ["[ ]", "GPU before or after on this host"],
      ]}
    >
      <div className="gpu-top">
        <GpuHeader gpu={gpu.data} id={id} view={view} siblings={siblings} />
        <CopyAs forms={forms(id, view)} />
      </div>
      {!isUnknown && <Verdict gpu={gpu.data} columns={answer?.columns} catalog={catalog} ageMs={ageMs} />}
      <div className={isUnknown ? "gpu-body alone" : "gpu-body"}>
        <TimelinePanel
          title="Time line"
          query={telemetry}
          view={view}
          specs={THEMES}
          lanes={LANES}
          events={events.data?.events ?? []}
          ageMs={view.window.live ? ageMs : null}
          staleMs={STALE_MS}
          none={{
            title: "No sample in this window",
            hint: "This GPU sent nothing in this time. A wider range may hold its last samples; the gaps page says why there are no newer ones.",
          }}
        />
        {!isUnknown && (
          <aside className="side" aria-label="About this GPU">
            <Peers peers={peers} id={id} view={view} catalog={catalog} />
            <Dossier gpu={gpu.data} id={id} view={view} catalog={catalog} />
          </aside>
        )}
      </div>
    </Page>
  );
}

function placeName(peers: ReturnType<typeof usePeers>, id: string, known: Gpu | undefined): string {
  const gpu = peers.find((peer) => peer.id === id) ?? known;
  return gpu === undefined ? id.slice(0, 12) : `GPU ${gpu.index ?? gpu.id.slice(-6)}`;
}
