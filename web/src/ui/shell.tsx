/** The frame that does not move: left rail, or a bottom bar on phones. */

import type { ReactNode } from "react";
import { Icon, type IconName } from "./icon";
import { Link } from "./navigation";
import { type Theme, useTheme } from "./theme";

export interface Page {
  to: string;
  name: string;
  icon: IconName;
}

export interface ShellProps {
  pages: readonly Page[];
  current: string;
  who: { name: string; tenant: string; role: string };
  onSignOut: () => void;
  children: ReactNode;
}

const THEME_ICON: Record<Theme, IconName> = { system: "system", light: "sun", dark: "moon" };

function ThemeToggle() {
  const { theme, toggle } = useTheme();
  return (
    <button type="button" className="rail-button" onClick={toggle}>
      <Icon name={THEME_ICON[theme]} size={14} />
      <span>{theme === "system" ? "System theme" : `${theme === "dark" ? "Dark" : "Light"} theme`}</span>
    </button>
  );
}

function Foot({ who, onSignOut }: Pick<ShellProps, "who" | "onSignOut">) {
  return (
    <div className="rail-foot">
      <ThemeToggle />
      <button type="button" className="rail-button" onClick={onSignOut}>
        <Icon name="leave" size={14} />
        <span>Sign out</span>
      </button>
      {who.role !== "" && (
        <p>
          <b>{who.name}</b>
          tenant {who.tenant} · {who.role}
        </p>
      )}
    </div>
  );
}

function Links({ pages, current, size }: Pick<ShellProps, "pages" | "current"> & { size: number }) {
  return pages.map((page) => (
    <Link key={page.to} to={page.to} current={page.name === current}>
      <Icon name={page.icon} size={size} />
      {page.name}
    </Link>
  ));
}

export function Shell({ pages, current, who, onSignOut, children }: ShellProps) {
  return (
    <div className="shell">
      <nav className="rail" aria-label="Pages">
        <div className="brand">
          <Icon name="pulse" size={18} />
          Secondsight
        </div>
        <Links pages={pages} current={current} size={16} />
        <Foot who={who} onSignOut={onSignOut} />
      </nav>
      <div className="shell-page">{children}</div>
      <nav className="bottom-bar" aria-label="Pages, narrow">
        <Links pages={pages} current={current} size={20} />
        <button type="button" onClick={onSignOut}>
          <Icon name="leave" size={20} />
          Sign out
        </button>
      </nav>
    </div>
  );
}
