/** Turn the text of a stream of server-sent events, in whatever pieces it comes, into events. */

export interface StreamEvent {
  name: string;
  id: string;
  data: string;
}

function toEvent(block: string): StreamEvent | null {
  const event = { name: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 1) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data += event.data === "" ? value : `\n${value}`;
  }
  return event.data === "" ? null : event;
}

/** A function that takes the next piece and gives the events that it completes. */
export function createParser(): (piece: string) => StreamEvent[] {
  let pieces: string[] = [];
  return (piece) => {
    const end = piece.lastIndexOf("\n\n");
    // A break may itself be cut in two, which only the whole text shows.
    if (end < 0 && !(piece.startsWith("\n") && pieces.at(-1)?.endsWith("\n") === true)) {
      pieces.push(piece);
      return [];
    }
    const text = pieces.join("") + piece;
    const last = text.lastIndexOf("\n\n");
    pieces = [text.slice(last + 2)];
    return text
      .slice(0, last)
      .split("\n\n")
      .flatMap((block) => toEvent(block) ?? []);
  };
}
