/** Ask for the search from anywhere in the frame. */

const ASKED = "secondsight:search";

export function openSearch(): void {
  dispatchEvent(new Event(ASKED));
}

/** Run `open` whenever the search is asked for; gives the way to stop. */
export function onSearchAsked(open: () => void): () => void {
  addEventListener(ASKED, open);
  return () => removeEventListener(ASKED, open);
}
