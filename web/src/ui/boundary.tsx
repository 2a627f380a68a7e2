/** Keep a fault of one page from taking the frame with it. */

import { Component, type ReactNode } from "react";
import { Main } from "./main";

interface Props {
  children: ReactNode;
}

interface State {
  message: string | null;
}

export class Boundary extends Component<Props, State> {
  override state: State = { message: null };

  static getDerivedStateFromError(error: unknown): State {
    return { message: error instanceof Error ? error.message : String(error) };
  }

  override render(): ReactNode {
    const { message } = this.state;
    if (message === null) return this.props.children;
    return (
      <Main>
        <section className="panel">
          <div className="state" role="alert">
            <h1>This page broke</h1>
            <p>
              That is a fault of Secondsight, not of the fleet. Load the page again; the data is not affected.
            </p>
            <code>{message}</code>
            <button type="button" className="control" onClick={() => location.reload()}>
              Load again
            </button>
          </div>
        </section>
      </Main>
    );
  }
}
