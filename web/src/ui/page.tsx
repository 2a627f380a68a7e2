/** What every page has: the top bar, the keys, its title. */

import { type ReactNode, useEffect, useRef, useState } from "react";
import { fixedParams } from "../model/window";
import { type KeyMap, useKeys } from "./keys";
import { navigate, usePlace, withParams } from "./navigation";
import { Shortcuts } from "./shortcuts";
import { type Health, TopBar } from "./top_bar";

export interface PageProps {
  title: string;
  /** Text of the find box; a page without a list of its own passes none. */
  find?: string;
  onFind?: (text: string) => void;
  span: { from: number; to: number };
  live: boolean;
  behindMs: number;
  onToggleLive: () => void;
  health: Health;
  keys?: KeyMap;
  children: ReactNode;
}

function goToList(text: string): void {
  navigate(`/gpus?q=${encodeURIComponent(text)}`);
}

export function Page(props: PageProps) {
  const place = usePlace();
  const findBox = useRef<HTMLInputElement>(null);
  const [sheet, setSheet] = useState(false);
  const [typed, setTyped] = useState("");
  useEffect(() => {
    document.title = `${props.title} · Secondsight`;
  }, [props.title]);
  useKeys({
    "/": () => findBox.current?.focus(),
    "?": () => setSheet(true),
    l: props.onToggleLive,
    ...props.keys,
  });
  return (
    <>
      <TopBar
        title={props.title}
        find={props.onFind === undefined ? typed : (props.find ?? "")}
        findRef={findBox}
        listHere={props.onFind !== undefined}
        onFind={props.onFind ?? setTyped}
        onFindEnter={props.onFind === undefined ? goToList : () => undefined}
        span={props.span}
        link={withParams(place, fixedParams(props.span.from, props.span.to))}
        live={props.live}
        behindMs={props.behindMs}
        onToggleLive={props.onToggleLive}
        health={props.health}
      />
      <main>{props.children}</main>
      <Shortcuts open={sheet} onClose={() => setSheet(false)} />
    </>
  );
}
