/** The sheet of keys. */

import { useEffect, useRef } from "react";

const KEYS: readonly [key: string, does: string][] = [
  ["/", "find GPUs"],
  ["L", "live or paused"],
  ["T", "charts or table"],
  ["[", "GPU before on this host"],
  ["]", "GPU after on this host"],
  ["Esc", "one level up"],
  ["?", "this sheet"],
];

export function Shortcuts({ open, onClose }: { open: boolean; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} className="sheet" onClose={onClose} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl>
        {KEYS.map(([key, does]) => (
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
