// Ask for what the first page shows while its scripts are still on their way; src/api/early.ts takes the answers.
if (location.pathname === "/") {
  const asked = ["/v1/session", "/v1/catalog", "/v1/fleet"];
  const params = new URLSearchParams(location.search);
  if (!params.has("by") && !params.has("at")) asked.push("/v1/fleet/map?metric=gpu_temperature_celsius&naming=hosts");
  window.secondsightEarly = new Map(
    asked.map((address) => [address, fetch(address, { credentials: "same-origin" }).catch(() => null)]),
  );
}
