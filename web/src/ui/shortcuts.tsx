/** The sheet of keys. */

import { useDialog } from "./dialog";

export type KeyHelp = readonly (readonly [key: string, does: string])[];

const KEYS: KeyHelp = [
  ["/", "search, or run a command"],
  ["L", "live or paused"],
  ["+ −", "narrower or wider window"],
  [", .", "earlier or later"],
  ["Y", "copy the link"],
  ["Esc", "one level up"],
  ["?", "this sheet"],
];

export function Shortcuts({ open, onClose, more }: { open: boolean; onClose: () => void; more: KeyHelp }) {
  const dialog = useDialog(open);
  return (
    <dialog ref={dialog} className="sheet" onClose={onClose} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl>
        {[...KEYS, ...more].map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p className="sheet-note">Drag on a chart zooms all of them; a double click goes back.</p>
      <form method="dialog">
        <button type="submit" className="control">
          Close
        </button>
      </form>
    </dialog>
  );
}
