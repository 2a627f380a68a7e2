/** Figures that stand side by side, and lists of names and values. */

import type { ReactNode } from "react";

export interface Tile {
  name: ReactNode;
  value: ReactNode;
  /** What the value is to be held against. */
  than?: ReactNode;
}

/** One row of figures in a panel. */
export function Tiles({ label, tiles }: { label: string; tiles: readonly Tile[] }) {
  return (
    <section className="panel tiles" aria-label={label}>
      {tiles.map((tile, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: tiles keep their places
        <div key={index}>
          <div className="tile-name">{tile.name}</div>
          <p>
            <b>{tile.value}</b> {tile.than}
          </p>
        </div>
      ))}
    </section>
  );
}

export interface Pair {
  name: string;
  value: ReactNode;
}

/** Names and values, one a line. */
export function Pairs({ pairs }: { pairs: readonly Pair[] }) {
  return (
    <dl className="pairs">
      {pairs.map((pair) => (
        <div key={pair.name}>
          <dt>{pair.name}</dt>
          <dd>{pair.value}</dd>
        </div>
      ))}
    </dl>
  );
}
