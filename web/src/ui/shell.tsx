/** The frame that does not move: left rail, or a bottom bar on phones. */

import { type ReactNode, useState } from "react";
import { useDialog } from "./dialog";
import { Icon, type IconName } from "./icon";
import { SkipLink } from "./main";
import { Link } from "./navigation";
import { type Theme, useTheme } from "./theme";

export interface PageLink {
  to: string;
  name: string;
  icon: IconName;
  /** Pages of one group stand together. */
  group: number;
  /** Stands in the bar of phones as well. */
  isMain?: boolean;
}

export interface ShellProps {
  pages: readonly PageLink[];
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

interface LinksProps {
  pages: readonly PageLink[];
  current: string;
  size: number;
  onGo?: () => void;
}

function Links({ pages, current, size, onGo }: LinksProps) {
  return pages.map((page, index) => (
    <Link
      key={page.to}
      to={page.to}
      current={page.name === current}
      className={index > 0 && page.group !== pages[index - 1]?.group ? "first-of-group" : undefined}
      {...(onGo === undefined ? {} : { onGo })}
    >
      <Icon name={page.icon} size={size} />
      <span>{page.name}</span>
    </Link>
  ));
}

/** Every page, on phones, where the bar has room for four. */
function More({ pages, current, who, onSignOut }: Omit<ShellProps, "children">) {
  const [open, setOpen] = useState(false);
  const dialog = useDialog(open);
  const close = () => setOpen(false);
  const isHere = pages.some((page) => page.name === current && page.isMain !== true);
  return (
    <>
      <button
        type="button"
        onClick={() => setOpen(true)}
        aria-haspopup="dialog"
        aria-current={isHere ? "true" : undefined}
      >
        <Icon name="more" size={20} />
        <span>More</span>
      </button>
      <dialog ref={dialog} className="sheet more" onClose={close} aria-label="All pages">
        <nav aria-label="All pages">
          <Links pages={pages} current={current} size={20} onGo={close} />
        </nav>
        <Foot who={who} onSignOut={onSignOut} />
        <form method="dialog">
          <button type="submit" className="control">
            Close
          </button>
        </form>
      </dialog>
    </>
  );
}

export function Shell({ pages, current, who, onSignOut, children }: ShellProps) {
  return (
    <div className="shell">
      <SkipLink />
      <nav className="rail" aria-label="Pages">
        <div className="brand">
          <Icon name="pulse" size={18} />
          Secondsight
        </div>
        <div className="rail-links">
          <Links pages={pages} current={current} size={16} />
        </div>
        <Foot who={who} onSignOut={onSignOut} />
      </nav>
      <div className="shell-page">{children}</div>
      <nav className="bottom-bar" aria-label="Pages, narrow">
        <Links pages={pages.filter((page) => page.isMain)} current={current} size={20} />
        <More pages={pages} current={current} who={who} onSignOut={onSignOut} />
      </nav>
    </div>
  );
}
