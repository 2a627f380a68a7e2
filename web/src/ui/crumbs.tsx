/** Where one is on the ladder, and the places beside it. */

import { Icon } from "./icon";
import type { KeyMap } from "./keys";
import { Link, navigate } from "./navigation";
import { Popover } from "./popover";

export interface Step {
  name: string;
  to: string;
}

export interface Siblings {
  /** What they are, in the plural: "hosts". */
  kind: string;
  places: readonly Step[];
  current: string;
}

const SHOWN = 40;

/** The places before and after the current one, going round at the ends. */
function beside({ places, current }: Siblings): { before: Step; after: Step } | null {
  const at = places.findIndex((place) => place.name === current);
  const before = places.at(at - 1);
  const after = places[(at + 1) % places.length];
  if (at < 0 || places.length < 2 || before === undefined || after === undefined) return null;
  return { before, after };
}

/** The keys that step to them. */
export function keysBeside(siblings: Siblings): KeyMap {
  const both = beside(siblings);
  return {
    "[": () => both !== null && navigate(both.before.to),
    "]": () => both !== null && navigate(both.after.to),
  };
}

function Beside({ siblings }: { siblings: Siblings }) {
  const both = beside(siblings);
  if (both === null) return null;
  return (
    <span className="crumb-beside">
      <Link to={both.before.to} label={`before: ${both.before.name}`}>
        <Icon name="left" size={12} />
      </Link>
      <Link to={both.after.to} label={`after: ${both.after.name}`}>
        <Icon name="right" size={12} />
      </Link>
    </span>
  );
}

function Others({ siblings }: { siblings: Siblings }) {
  const { places, current, kind } = siblings;
  if (places.length < 2) return <b>{current}</b>;
  const around = Math.max(0, places.findIndex((place) => place.name === current) - SHOWN / 2);
  return (
    <Popover
      name={`${current}; other ${kind}`}
      className="crumb-current"
      label={
        <>
          <b>{current}</b>
          <Icon name="down" size={12} />
        </>
      }
    >
      {(close) => (
        <nav className="menu" aria-label={`other ${kind}`}>
          {places.slice(around, around + SHOWN).map((place) => (
            <Link key={place.to} to={place.to} current={place.name === current} onGo={close}>
              {place.name}
            </Link>
          ))}
        </nav>
      )}
    </Popover>
  );
}

export function Crumbs({ steps, siblings }: { steps: readonly Step[]; siblings: Siblings }) {
  return (
    <nav className="crumbs" aria-label="Where this is">
      {steps.map((step) => (
        <span key={step.to}>
          <Link to={step.to}>{step.name}</Link>
          <Icon name="right" size={12} />
        </span>
      ))}
      <Others siblings={siblings} />
      <Beside siblings={siblings} />
    </nav>
  );
}
