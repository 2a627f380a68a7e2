/** Gather drawing of one moment into one animation frame. */

const waiting = new Map<object, () => void>();
let requested = 0;

function flush(): void {
  requested = 0;
  const jobs = [...waiting.values()];
  waiting.clear();
  for (const job of jobs) job();
}

/** Run `job` in the next frame; a later job of the same owner takes its place. */
export function inNextFrame(owner: object, job: () => void): void {
  waiting.set(owner, job);
  if (requested === 0) requested = requestAnimationFrame(flush);
}

/** Forget what an owner still waits for. */
export function forgetFrame(owner: object): void {
  waiting.delete(owner);
}

/** Run `job` once the next frame is on the screen; the function given back forgets it. */
export function afterFrame(job: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const frame = requestAnimationFrame(() => {
    timer = setTimeout(job);
  });
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
}
