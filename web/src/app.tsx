/** Put the frame, the pages and the search together. */

import { QueryCache, QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { Suspense, useEffect } from "react";
import { ApiError } from "./api/client";
import { signOut, waysQuery } from "./api/session";
import { Palette } from "./features/find/palette";
import { SigninPage } from "./features/signin/signin_page";
import { currentPage, PAGES, pageOf } from "./routes";
import { Boundary } from "./ui/boundary";
import { Main, useFocusOn } from "./ui/main";
import { Link, navigate, usePlace } from "./ui/navigation";
import { Shell } from "./ui/shell";
import { Empty, Skeleton } from "./ui/states";

const SIGNIN = "/signin";

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
    <Main>
      <div className="say">
        <h1>Not found</h1>
      </div>
      <section className="panel">
        <Empty title="There is no such page">
          {path} is not an address of Secondsight. Ctrl-K, or /, finds a place by its name.
        </Empty>
        <p className="panel-note">
          <Link to="/" className="control">
            Go to Fleet
          </Link>
        </p>
      </section>
    </Main>
  );
}

function Waiting({ what = "this page" }: { what?: string }) {
  return (
    <Main>
      <Skeleton height={240} waitsFor={what} />
    </Main>
  );
}

function SignedIn({ path, client }: { path: string; client: QueryClient }) {
  const ways = useQuery(waysQuery);
  const isNobody = ways.data?.session === null;
  useFocusOn(path);
  useEffect(() => {
    if (isNobody) goToSignin();
  }, [isNobody]);
  const leave = async () => {
    navigate(SIGNIN);
    await signOut().catch(() => undefined);
    client.clear();
  };
  const commands = [
    ...PAGES.map((page) => ({ name: `Go to ${page.name}`, run: () => navigate(page.to) })),
    { name: "Sign out", run: () => void leave() },
  ];
  // Until it is known who is there, nothing else is asked for.
  if (ways.isPending) return <Waiting what="who is signed in" />;
  if (isNobody) return null;
  return (
    <Shell
      pages={PAGES}
      current={currentPage(path)}
      who={ways.data?.session ?? { name: "", tenant: "", role: "" }}
      onSignOut={() => void leave()}
    >
      <Boundary key={path}>
        <Suspense fallback={<Waiting />}>{pageOf(path) ?? <NotFound path={path} />}</Suspense>
      </Boundary>
      <Palette commands={commands} />
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
  return <SigninPage back={returnPath(search)} onDone={enter} />;
}

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <Routes client={client} />
    </QueryClientProvider>
  );
}
