/** Search everything that has a name, and run commands, from one field. */

import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { catalogQuery } from "../../api/fleet";
import { type Match, searchQuery } from "../../api/search";
import { clusterPath, gpuPath, hostPath, jobPath, modelPath } from "../../panels/ladder";
import { useDialog } from "../../ui/dialog";
import { useKeys } from "../../ui/keys";
import { navigate } from "../../ui/navigation";
import { onSearchAsked } from "../../ui/search_event";
import "./palette.css";

export interface Command {
  name: string;
  run: () => void;
}

interface Option {
  key: string;
  kind: string;
  name: string;
  detail: string;
  run: () => void;
}

const COMMANDS_SHOWN = 14;
const METRICS_SHOWN = 6;

function pathOf(match: Match): string {
  switch (match.kind) {
    case "cluster":
      return clusterPath(match.name);
    case "host":
      return hostPath(match.name);
    case "gpu":
      return gpuPath(match.name);
    case "job":
      return jobPath(match.name);
    case "model":
      return modelPath(match.name);
    default:
      return `/gpus?q=${encodeURIComponent(match.name)}`;
  }
}

function holds(name: string, words: readonly string[]): boolean {
  const lower = name.toLowerCase();
  return words.every((word) => lower.includes(word));
}

function useOptions(text: string, commands: readonly Command[]): Option[] {
  const found = useQuery(searchQuery(text.trim()));
  const { data: catalog } = useQuery(catalogQuery);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const runs = commands
    .filter((command) => holds(command.name, words))
    .slice(0, COMMANDS_SHOWN)
    .map(({ name, run }) => ({ key: name, kind: "command", name, detail: "", run }));
  if (words.length === 0) return runs;
  const places = (found.data ?? []).map((match) => ({
    key: `${match.kind} ${match.cluster} ${match.host} ${match.name}`,
    kind: match.kind,
    name: match.name,
    detail: [match.cluster, match.host].filter((name) => name !== "" && name !== match.name).join(" › "),
    run: () => navigate(pathOf(match)),
  }));
  const metrics = [...(catalog?.values() ?? [])]
    .filter((metric) => holds([metric.name, ...metric.aliases].join(" "), words))
    .slice(0, METRICS_SHOWN)
    .map((metric) => ({
      key: metric.name,
      kind: "metric",
      name: metric.name,
      detail: metric.unit,
      run: () => navigate(`/explore?metrics=${metric.name}`),
    }));
  return [...places, ...metrics, ...runs];
}

function Options({
  id,
  options,
  at,
  onPick,
}: {
  id: string;
  options: readonly Option[];
  at: number;
  onPick: (option: Option) => void;
}) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.children[at]?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <div ref={list} id={id} role="listbox" aria-label="Found" className="palette-list">
      {options.map((option, index) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the field above takes the keys
        <div
          key={option.key}
          id={`${id}-${index}`}
          role="option"
          tabIndex={-1}
          aria-selected={index === at}
          className="palette-option"
          onClick={() => onPick(option)}
        >
          <span className="palette-kind">{option.kind}</span>
          <b>{option.name}</b>
          <span className="palette-detail">{option.detail}</span>
        </div>
      ))}
    </div>
  );
}

function Search({ commands, onDone }: { commands: readonly Command[]; onDone: () => void }) {
  const id = useId();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const options = useOptions(text, commands);
  const current = Math.min(at, options.length - 1);
  const pick = (option: Option | undefined) => {
    if (option === undefined) return;
    onDone();
    option.run();
  };
  const keys = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined) setAt((current + step + options.length) % Math.max(1, options.length));
    else if (event.key === "Enter") pick(options[current]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        // biome-ignore lint/a11y/noAutofocus: the dialog was opened to type into this field
        autoFocus
        type="text"
        role="combobox"
        aria-label="Search or run a command"
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={current >= 0 ? `${id}-${current}` : undefined}
        aria-autocomplete="list"
        placeholder="A cluster, host, GPU, job, model, metric or command"
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={keys}
      />
      <Options id={id} options={options} at={current} onPick={pick} />
      <p className="palette-note" role="status">
        {options.length === 0 ? `Nothing here has “${text}” in its name.` : "Enter opens, Escape closes."}
      </p>
    </>
  );
}

export function Palette({ commands }: { commands: readonly Command[] }) {
  const [open, setOpen] = useState(false);
  const dialog = useDialog(open);
  useEffect(() => onSearchAsked(() => setOpen(true)), []);
  useKeys({ "/": () => setOpen(true) });
  useEffect(() => {
    const pressed = (event: globalThis.KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const close = () => setOpen(false);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      ref={dialog}
      className="sheet palette"
      aria-label="Search"
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {open && <Search commands={commands} onDone={close} />}
    </dialog>
  );
}
