/** Say reasons of gaps in words that tell whom to ask. */

const MEANINGS: Record<string, string> = {
  maintenance: "planned work",
  host_terminated: "the instance did not run",
  drained: "the scheduler took it out",
  host_restart: "the host booted",
  shed: "the agent had no room left",
  clock: "refused for its time",
  quota: "over the tenant's quota",
  overload: "the gateway had no room",
  collector_down: "no heartbeat of the agent",
  network: "late, or a whole rack at once",
  source: "the agent reports, the driver does not",
  unknown: "nothing else is known",
};

export function reasonWords(reason: string): string {
  return reason.replaceAll("_", " ");
}

/** What is known where this is the reason; empty of a reason that these pages do not know. */
export function reasonMeaning(reason: string): string {
  return MEANINGS[reason] ?? "";
}
