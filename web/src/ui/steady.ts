/** Functions that stay the same while what they do is renewed. */

import { useCallback, useEffect, useRef } from "react";

/** The same function for ever, which does what the newest one does. */
export function useSteady<A extends unknown[]>(action: (...args: A) => void): (...args: A) => void {
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  return useCallback((...args: A) => latest.current(...args), []);
}
