/** Several requests as one: their answers, and what the first that failed says. */

interface Result<T> {
  data: T | undefined;
  error: Error | null;
  errorUpdatedAt: number;
  refetch: () => unknown;
}

export function combined<T>(results: readonly Result<T>[]) {
  const failed = results.find((result) => result.error !== null);
  return {
    answers: results.map((result) => result.data),
    error: failed?.error ?? null,
    errorUpdatedAt: Math.max(0, ...results.map((result) => result.errorUpdatedAt)),
    refetch: () => results.forEach((result) => void result.refetch()),
  };
}
