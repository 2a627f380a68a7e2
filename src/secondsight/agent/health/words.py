"""Turn ages, sizes and foreign texts into short words for a terminal."""

SECOND_WORDS = ((86_400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s"))
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def width(seconds: float) -> str:
    """Return a length of time: `0.4 s`, `12 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit_seconds, unit, part_seconds, part in SECOND_WORDS:
        if seconds >= unit_seconds:
            whole, rest = divmod(seconds, unit_seconds)
            left = int(rest // part_seconds)
            return f"{int(whole)} {unit} {left} {part}" if left else f"{int(whole)} {unit}"
    return f"{seconds:.0f} s"


def short(seconds: float) -> str:
    """Return how long a read takes: `0.8 ms`, `120 ms`, `1.4 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def size(size_bytes: float) -> str:
    """Return an amount of memory or disk: `812 B`, `48.2 MiB`."""
    amount, place = float(size_bytes), 0
    while amount >= 1024 and place < len(BYTE_UNITS) - 1:
        amount, place = amount / 1024, place + 1
    return f"{amount:.0f} B" if place == 0 else f"{amount:.1f} {BYTE_UNITS[place]}"


def count(number: int) -> str:
    """Return a count with its thousands apart."""
    return f"{number:,}".replace(",", " ")


def plain(text: str) -> str:
    """Return a text that others wrote without what could steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def table(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table whose first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
