/** What every page has: the top bar, the keys, its title. */

import { type ReactNode, useEffect, useState } from "react";
import { fixedParams, moved } from "../model/window";
import { type KeyMap, useKeys } from "./keys";
import { Main } from "./main";
import { navigate, withParams } from "./navigation";
import { type KeyHelp, Shortcuts } from "./shortcuts";
import { type Health, TopBar } from "./top_bar";
import type { View } from "./view";

export interface PageProps {
  title: string;
  /** What stands in the bar of phones, where the title is too long. */
  shortTitle?: string;
  view: View;
  health: Health;
  /** Where Escape leads; none on the first page. */
  up?: string;
  keys?: KeyMap;
  /** What the keys of this page do, for the sheet. */
  keyHelp?: KeyHelp;
  children: ReactNode;
}

function move(view: View, direction: -1 | 1): void {
  const { from, to } = moved(view.span.from, view.span.to, direction, Date.now());
  navigate(withParams(view.place, fixedParams(from, to)));
}

export function Page({ title, shortTitle, view, health, up, keys, keyHelp, children }: PageProps) {
  const [sheet, setSheet] = useState(false);
  useEffect(() => {
    document.title = `${title} · Secondsight`;
  }, [title]);
  const { actions, span } = view;
  useKeys({
    "?": () => setSheet(true),
    l: actions.toggleLive,
    "-": actions.zoomOut,
    "+": () => actions.zoom([span.from + (span.to - span.from) / 4, span.to - (span.to - span.from) / 4]),
    ",": () => move(view, -1),
    ".": () => move(view, 1),
    ...(up === undefined ? {} : { escape: () => navigate(up) }),
    ...keys,
  });
  return (
    <>
      <TopBar
        title={shortTitle ?? title}
        view={view}
        link={withParams(view.place, fixedParams(span.from, span.to))}
        health={health}
      />
      <Main label={title}>{children}</Main>
      <Shortcuts open={sheet} onClose={() => setSheet(false)} more={keyHelp ?? []} />
    </>
  );
}
