/** Choose the page that an address names, inside the frame. */

import { QueryCache, QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError } from "./api/client";
import { sessionQuery, signOut } from "./api/session";
import { FleetPage, GpusPage } from "./features/fleet/fleet_page";
import { GpuPage } from "./features/gpu/gpu_page";
import { SigninPage } from "./features/signin/signin_page";
import { Boundary } from "./ui/boundary";
import { navigate, usePlace } from "./ui/navigation";
import { type Page, Shell } from "./ui/shell";
import { Empty } from "./ui/states";

const SIGNIN = "/signin";
const PAGES: readonly Page[] = [
  { to: "/", name: "Fleet", icon: "fleet" },
  { to: "/gpus", name: "GPUs", icon: "gpus" },
];

function goToSignin(): void {
  if (location.pathname === SIGNIN) return;
  const back = location.pathname + location.search;
  navigate(back === "/" ? SIGNIN : `${SIGNIN}?return=${encodeURIComponent(back)}`, { replace: true });
}

export function createClient(): QueryClient {
  const onError = (error: Error) => {
    if (error instanceof ApiError && error.status === 401) goToSignin();
  };
  return new QueryClient({
    queryCache: new QueryCache({ onError }),
    defaultOptions: { queries: { retry: false, refetchOnWindowFocus: true, networkMode: "always" } },
  });
}

/** An address of these pages; another site is never followed. */
function returnPath(search: string): string {
  const path = new URLSearchParams(search).get("return") ?? "/";
  return path.startsWith("/") && !path.startsWith("//") && !path.startsWith("/\\") ? path : "/";
}

function NotFound({ path }: { path: string }) {
  useEffect(() => {
    document.title = "Not found · Secondsight";
  }, []);
  return (
    <main>
      <section className="panel">
        <Empty title="There is no such page">
          {path} is not an address of Secondsight. Fleet is where all starts.
        </Empty>
      </section>
    </main>
  );
}

function Body({ path }: { path: string }) {
  if (path === "/") return <FleetPage />;
  if (path === "/gpus") return <GpusPage />;
  const [, id] = /^\/gpus\/([^/]+)$/.exec(path) ?? [];
  if (id !== undefined) return <GpuPage key={id} id={decodeURIComponent(id)} />;
  return <NotFound path={path} />;
}

function currentPage(path: string): string {
  if (path === "/") return "Fleet";
  return path.startsWith("/gpus") ? "GPUs" : "";
}

function SignedIn({ path, client }: { path: string; client: QueryClient }) {
  const session = useQuery(sessionQuery);
  const leave = async () => {
    await signOut().catch(() => undefined);
    client.clear();
    navigate(SIGNIN);
  };
  return (
    <Shell
      pages={PAGES}
      current={currentPage(path)}
      who={session.data ?? { name: "", tenant: "", role: "" }}
      onSignOut={() => void leave()}
    >
      <Boundary key={path}>
        <Body path={path} />
      </Boundary>
    </Shell>
  );
}

function Routes({ client }: { client: QueryClient }) {
  const { path, search } = usePlace();
  if (path !== SIGNIN) return <SignedIn path={path} client={client} />;
  const enter = () => {
    client.clear();
    navigate(returnPath(search), { replace: true });
  };
  return <SigninPage onDone={enter} />;
}

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <Routes client={client} />
    </QueryClientProvider>
  );
}
