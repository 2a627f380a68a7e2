/** Exchange a token for a session, or go to who vouches for people. */

import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useEffect, useId, useState } from "react";
import { ApiError } from "../../api/client";
import { issuerLogin, signIn, waysQuery } from "../../api/session";
import { Icon, Shape } from "../../ui/icon";
import "./signin.css";

/** What a refusal means for the one who signs in. */
function explain(error: unknown): string {
  if (!(error instanceof ApiError)) return "Something went wrong in this page. Reload it and try again.";
  if (error.isDisconnected) return "Secondsight does not answer. Is it running?";
  if (error.status === 401) return "This token is not known, or it has expired.";
  if (error.status === 403) return "This token may only write. Sign in with one that may read.";
  return error.message;
}

function useSignIn(onDone: () => void) {
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState("");
  const submit = async (token: string) => {
    if (token === "") return setRefused("Paste a token first.");
    setBusy(true);
    setRefused("");
    try {
      await signIn(token);
      onDone();
    } catch (error) {
      setRefused(explain(error));
    } finally {
      setBusy(false);
    }
  };
  return { busy, refused, submit };
}

/** "login.example.org" of the address of an issuer. */
function hostOf(issuer: string): string {
  return URL.canParse(issuer) ? new URL(issuer).host : issuer;
}

export interface SigninPageProps {
  /** Path of these pages that a sign-in leads to. */
  back: string;
  onDone: () => void;
}

export function SigninPage({ back, onDone }: SigninPageProps) {
  const issuer = useQuery(waysQuery).data?.issuer ?? null;
  const id = useId();
  const [token, setToken] = useState("");
  const { busy, refused, submit } = useSignIn(onDone);
  useEffect(() => {
    document.title = "Sign in · Secondsight";
  }, []);
  const send = (event: FormEvent) => {
    event.preventDefault();
    void submit(token.trim());
  };
  return (
    <main className="signin">
      <form className="panel" onSubmit={send}>
        <div className="signin-brand">
          <Icon name="pulse" size={18} />
          Secondsight
        </div>
        <h1>Sign in</h1>
        {issuer !== null && (
          <>
            <a className="signin-button" href={issuerLogin(back)}>
              Sign in with {hostOf(issuer)}
            </a>
            <p className="signin-or">or with a token</p>
          </>
        )}
        <label htmlFor={id}>Token</label>
        <input
          id={id}
          type="password"
          autoComplete="current-password"
          value={token}
          aria-invalid={refused !== ""}
          aria-describedby={`${id}-hint`}
          onChange={(event) => setToken(event.target.value)}
        />
        <p className="signin-refused" role="alert">
          {refused !== "" && (
            <>
              <Shape tone="bad" />
              {refused}
            </>
          )}
        </p>
        <button
          type="submit"
          className={issuer === null ? "signin-button" : "signin-button second"}
          disabled={busy}
        >
          {busy ? "Signing in" : "Sign in"}
        </button>
        <p id={`${id}-hint`} className="signin-hint">
          On the machine that runs it, the token of the first administrator is in{" "}
          <code>DATA/tokens/admin</code>, where DATA is the folder that <code>secondsight up</code> names.
        </p>
      </form>
    </main>
  );
}
