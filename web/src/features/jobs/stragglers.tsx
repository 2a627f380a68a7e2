/** Who holds back whom, what that costs at most, and what speaks for it. */

import type { Happening } from "../../api/events";
import type { Gpu } from "../../api/fleet";
import { BEHIND_RATIO, type Straggler, waitedHours } from "../../model/stragglers";
import { fixedParams } from "../../model/window";
import { titleOf } from "../../panels/event_words";
import { nameOf } from "../../panels/gpu_columns";
import { gpuPath } from "../../panels/ladder";
import { StatusWord } from "../../ui/icon";
import { Link } from "../../ui/navigation";
import { Panel } from "../../ui/panel";
import { countOf, formatNumber } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";

const SHOWN = 8;
/** Behind in at least this share of the windows counts as lasting. */
const LASTING_RATIO = 0.2;

export interface StragglersProps {
  ranking: readonly Straggler[];
  windows: number;
  slotMs: number;
  /** What is compared, in words, and a figure of it. */
  what: string;
  say: (value: number) => string;
  names: ReadonlyMap<string, Gpu>;
  events: readonly Happening[];
  view: View;
}

/** The one that clearly holds back the others; null where nobody does. */
export function clearStraggler(ranking: readonly Straggler[], windows: number): Straggler | null {
  const [first, second] = ranking;
  if (first === undefined || second === undefined || windows === 0) return null;
  const isLasting = first.windows >= windows * LASTING_RATIO;
  const isAlone = first.behindRatio > 2 * Math.max(second.behindRatio, 0.02);
  return first.behindRatio > BEHIND_RATIO / 2 && isLasting && isAlone ? first : null;
}

function percent(ratio: number): string {
  return `${Math.round(ratio * 100)} %`;
}

function Evidence({ straggler, ...props }: StragglersProps & { straggler: Straggler }) {
  const { ranking, windows, what, say, names, events, view } = props;
  const gpu = names.get(straggler.key);
  const others = ranking.filter((each) => each.key !== straggler.key);
  const middle = others[Math.floor(others.length / 2)];
  const own = [...new Set(events.filter((event) => event.gpu === straggler.key).map(titleOf))];
  const first = events.findLast((event) => event.gpu === straggler.key);
  const around = first === undefined ? {} : fixedParams(first.at - 300_000, first.at + 300_000);
  return (
    <div className="diagnosis">
      <p>
        {gpu === undefined ? straggler.key : nameOf(gpu)} stays {percent(straggler.behindRatio)} behind the
        median of {countOf(others.length, "other GPU")}.
      </p>
      <ol>
        <li>
          {what} <b>{say(straggler.mean)}</b>, others <b>{middle === undefined ? "–" : say(middle.mean)}</b>
        </li>
        <li>
          behind by over a tenth in <b>{formatNumber(straggler.windows)}</b> of {formatNumber(windows)}{" "}
          windows
        </li>
        <li>{own.length === 0 ? "no finding of this GPU in the window" : `findings: ${own.join(", ")}`}</li>
      </ol>
      <Link to={keepWindow(view, gpuPath(straggler.key), around)} className="control main">
        Open {gpu === undefined ? "the GPU" : nameOf(gpu)}
      </Link>
    </div>
  );
}

/** Less than this behind the median is noise. */
const WORTH_A_LINE = 0.005;

export function Stragglers(props: StragglersProps) {
  const { ranking, windows, slotMs, names, view } = props;
  const straggler = clearStraggler(ranking, windows);
  const behind = ranking.slice(0, SHOWN).filter((each) => each.behindRatio >= WORTH_A_LINE);
  return (
    <>
      <Panel title="Diagnosis" className="side-panel">
        <div className="diagnosis-head">
          {straggler === null ? (
            <StatusWord tone="ok" word="No GPU holds back the others" />
          ) : (
            <StatusWord tone="warn" word={`One slow GPU holds back ${ranking.length - 1}`} />
          )}
        </div>
        {straggler === null ? (
          <p className="panel-note">
            No GPU stays clearly and lastingly behind the median of the job in this window.
          </p>
        ) : (
          <Evidence {...props} straggler={straggler} />
        )}
      </Panel>
      <Panel title="Stragglers" sub="what waiting cost at most" className="side-panel">
        {behind.length === 0 && <p className="panel-note">All GPUs keep up with their median.</p>}
        <ol className="top-list straggler-list">
          {behind.map((each) => {
            const gpu = names.get(each.key);
            const hours = waitedHours(each, ranking.length, slotMs, windows);
            return (
              <li key={each.key}>
                <Link to={keepWindow(view, gpuPath(each.key))}>
                  <span className="top-name">{gpu === undefined ? each.key.slice(0, 12) : nameOf(gpu)}</span>
                  <span>{percent(Math.max(0, each.behindRatio))}</span>
                  <b>{hours.toFixed(1)} GPU-h</b>
                </Link>
              </li>
            );
          })}
        </ol>
        <p className="panel-note">
          Share behind the median of the job, and the hours that the other GPUs waited where they work in
          step.
        </p>
      </Panel>
    </>
  );
}
