// Ask who is signed in, and then for what the first page shows, while its scripts are still on their way;
// src/api/early.ts takes the answers. Before somebody is known to be signed in nothing else is asked.
const ask = (address) => fetch(address, { credentials: "same-origin" }).catch(() => null);
const ways = ask("/v1/session/ways");
window.secondsightEarly = new Map([["/v1/session/ways", ways]]);
if (location.pathname === "/") {
  const isKnown = ways
    .then((answer) => answer?.clone().json())
    .then((who) => who?.session != null)
    .catch(() => false);
  const asked = ["/v1/fleet", "/v1/catalog"];
  const params = new URLSearchParams(location.search);
  if (!params.has("by") && !params.has("at")) asked.unshift("/v1/fleet/map?metric=gpu_temperature_celsius&naming=hosts");
  for (const address of asked) {
    window.secondsightEarly.set(
      address,
      isKnown.then((known) => (known ? ask(address) : null)),
    );
  }
}
// The first look into this storage takes long, and nothing waits for it here; src/ui/theme.ts goes on from it.
const theme = localStorage.getItem("secondsight.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
