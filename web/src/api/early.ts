/** Take answers that public/early.js asked for while the scripts of the pages were on their way, each once. */

declare global {
  interface Window {
    secondsightEarly?: Map<string, Promise<Response | null>>;
  }
}

/** Later than this an answer is too old to be shown as new. */
const FRESH_MS = 10_000;

/** The answer that was asked for early; undefined where there is none. */
export function takeEarly(address: string): Promise<Response | null> | undefined {
  const asked = globalThis.window?.secondsightEarly;
  const found = asked?.get(address);
  asked?.delete(address);
  return performance.now() < FRESH_MS ? found : undefined;
}
