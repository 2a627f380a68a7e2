/** Turn what went wrong into what a panel says. */

import type { Failure } from "./states";

function textOf(error: object, name: string): string {
  const value: unknown = name in error ? Reflect.get(error, name) : undefined;
  return typeof value === "string" ? value : "";
}

/** An error as a panel says it; errors of the api carry code, hint and whether to retry. */
export function toFailure(error: Error): Failure {
  const retryable: unknown = Reflect.get(error, "isRetryable");
  return {
    message: error.message,
    code: textOf(error, "code") || error.name,
    hint: textOf(error, "hint"),
    isRetryable: retryable === true,
    isForbidden: Reflect.get(error, "status") === 403,
  };
}
