/** Filters that hold, each with a way to drop it. */

import { Icon } from "./icon";

export interface PicksProps {
  picks: readonly { name: string; value: string }[];
  onDrop: (name: string) => void;
}

export function Picks({ picks, onDrop }: PicksProps) {
  if (picks.length === 0) return null;
  return (
    <ul className="picks" aria-label="filters">
      {picks.map(({ name, value }) => (
        <li key={name}>
          <span>
            {name} <b>{value.length > 48 ? `${value.slice(0, 48)}…` : value}</b>
          </span>
          <button type="button" aria-label={`drop the filter ${name}`} onClick={() => onDrop(name)}>
            <Icon name="close" size={12} />
          </button>
        </li>
      ))}
    </ul>
  );
}
