/** Gaps on the time of the window: one bar a story, the widest on top. */

import { createCursor } from "../../chart/cursor";
import { GUTTER_PX } from "../../chart/options";
import { TimeAxis } from "../../chart/time_axis";
import { formatClock, formatTick } from "../../ui/times";
import { placeOf, type StoriesProps } from "./story_table";

const SHOWN = 12;
const cursor = createCursor();

export function StoryStrip({ stories, view, names }: StoriesProps) {
  const { from, to } = view.span;
  const largest = stories
    .slice()
    .sort((a, b) => b.missing - a.missing)
    .slice(0, SHOWN);
  if (largest.length === 0) return null;
  const share = (ms: number) => Math.min(100, Math.max(0, ((ms - from) / (to - from)) * 100));
  return (
    <div className="story-strip">
      {largest.map((story) => (
        <div key={story.key} className="story-row">
          <span>{placeOf(story, names)}</span>
          <div style={{ marginInline: `${GUTTER_PX.left}px ${GUTTER_PX.right}px` }}>
            <button
              type="button"
              className={story.isExpected ? "story-bar expected" : "story-bar"}
              style={{
                left: `${share(story.start)}%`,
                width: `${share(story.end ?? to) - share(story.start)}%`,
              }}
              title={`${story.reason}, from ${formatClock(story.start)}`}
              aria-label={`${placeOf(story, names)}: ${story.reason} from ${formatClock(story.start)}; zoom to it`}
              onClick={() => view.actions.zoom([story.start - 60_000, (story.end ?? to) + 60_000])}
            />
          </div>
        </div>
      ))}
      <div className="story-row">
        <span />
        <TimeAxis x={[from, to]} cursor={cursor} tick={formatTick} clock={formatClock} />
      </div>
    </div>
  );
}
