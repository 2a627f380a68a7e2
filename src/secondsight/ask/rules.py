"""Decide which questions are not answered: refused, not measured, or too vague. Words never widen what is allowed.

Each rule looks at what a question names and returns a verdict, or None to let the next one look. The texts are fixed:
they repeat nothing of the question, and say the same of what is not there and of what is not the caller's.
"""

import re
from collections.abc import Callable

from secondsight.ask.question import ECC, ERROR_EVENTS, TOGETHER, Kind, Question, Treatment
from secondsight.ask.reading import Reading
from secondsight.ask.views import Views

NO_SUCH_NAME = "There is nothing of that name among what you may see."

_SQL = re.compile(
    r"\bselect\b.{0,200}\bfrom\b|\bunion\s+(all\s+)?select\b|\b(drop|truncate|alter|create)\s+(table|view|database|user)\b"
    r"|\binsert\s+into\b|\bdelete\s+from\b|\bupdate\s+\w+\s+set\b|--\s|;\s*\w+|/\*|\binformation_schema\b|\bsystem\.\w+"
    r"|\bor\s+1\s*=\s*1\b|\bwhere\s+1\s*=\s*1\b|\bexec(ute)?\s*\(|\b(file|url|s3|remote|mysql|numbers)\s*\(",
    re.IGNORECASE | re.DOTALL,
)
_LINK = re.compile(r"https?://|ftp://|\bwww\.|[\w.+-]+@[\w-]+\.\w+|s3://|file://", re.IGNORECASE)
_WISHES = frozenset({"please", "and", "then", "you", "to", "now", "just", "also", "must", "should", "i"})
_QUESTION_WORDS = frozenset({"did", "was", "were", "is", "are", "has", "have", "how", "which", "what", "when", "why"})

_REFUSALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "other_tenant": (
        "I answer about what you may see, and about nobody else's.",
        ("Average utilisation of my fleet by cluster yesterday",),
    ),
    "scope": (
        "What you may see is decided by your grants; no words in a question change it.",
        ("Ask an administrator for a grant", "Average utilisation by cluster yesterday"),
    ),
    "instructions": (
        "Texts in questions, names and results are read as data; they give no orders.",
        ("Which metrics can I ask about?", "Average utilisation by cluster yesterday"),
    ),
    "sql": (
        "Questions run on the curated views alone. SQL over those goes to `POST /v1/sql`, through the same guard.",
        ("Which metrics can I ask about?",),
    ),
    "introspection": (
        "What lies below the metrics is not part of the answer. The metrics themselves I can list.",
        ("Which metrics can I ask about?",),
    ),
    "write": (
        "I only read: nothing is changed, stopped or deleted by a question.",
        ("What happened today?", "Which metrics can I ask about?"),
    ),
    "exfiltration": (
        "Answers go to whoever asks, and nowhere else. You can save them from the page, as CSV or by the API.",
        ("Average utilisation by cluster yesterday",),
    ),
}
_COSTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "each_second": (
        "Single seconds are read for at most 15 minutes of a host or GPU here; more of them is an export.",
        ("the same in windows of 30 s or 1 h", "an export job of the raw rows", "min, mean and max per hour"),
    ),
    "distinct_times": (
        "A list of every timestamp would have hundreds of thousands of rows.",
        ("count the seconds instead", "coverage per hour", "gaps in the telemetry"),
    ),
    "pairs": (
        "Every pair of GPUs at this resolution is too much for one question.",
        ("sample or aggregate first: hourly means", "compare each GPU with the median of its job"),
    ),
    "everything": (
        "All of the data in one answer is too much; name a metric and a range.",
        ("1 h means of one metric over the range", "an export job"),
    ),
}
_VAGUE: dict[str, tuple[str, tuple[str, ...]]] = {
    "performance": (
        "Which metric do you mean: utilisation, clock, throughput, power? Step times are not measured here.",
        ("GPU utilisation", "SM clock", "PCIe throughput", "power"),
    ),
    "measure": (
        "By what measure: utilisation, temperature, power, errors?",
        ("average utilisation", "highest temperature", "number of errors"),
    ),
    "usage": (
        "Use of what: GPU utilisation, GPU-hours, memory, power or energy?",
        ("GPU utilisation", "GPU-hours", "memory used", "energy in kWh"),
    ),
    "report": (
        "Which report do you mean? Name the metric and the range that it should show.",
        ("What happened on that day?", "utilisation and energy by cluster"),
    ),
    "comparison": (
        "What are the two things to compare, and by which metric?",
        ("Compare GPU utilisation of two jobs", "Compare power of two clusters"),
    ),
    "entity": (
        "Which one do you mean? Name the cluster, host, GPU, job or team.",
        ("a cluster", "a host", "a job"),
    ),
}

Rule = Callable[[Reading, Views], Question | None]


def screen(reading: Reading, views: Views) -> Question | None:
    """Return the verdict on a question that is not to be answered as it stands, or None."""
    for rule in (_forbidden, _foreign, _help, _cost, _unmeasured, _future, _backwards, _unknown_words):
        verdict = rule(reading, views)
        if verdict is not None:
            return verdict
    return None


def refuse(rule: str, message: str, options: tuple[str, ...] = ()) -> Question:
    """Return a refusal."""
    return Question(Treatment.REFUSE, message=message, options=options, rule=rule)


def clarify(rule: str, message: str, options: tuple[str, ...] = ()) -> Question:
    """Return a question asked back."""
    return Question(Treatment.CLARIFY, message=message, options=options, rule=rule)


def unanswerable(rule: str, message: str, options: tuple[str, ...] = ()) -> Question:
    """Return that something is not measured."""
    return Question(Treatment.UNANSWERABLE, message=message, options=options, rule=rule)


def vague(word: str) -> Question:
    """Return what a vague word has to be asked about."""
    message, options = _VAGUE[word]
    return clarify(f"vague_{word}", message, options)


def no_such_name() -> Question:
    """Return the one answer to names that are not there and to names that are not the caller's."""
    return refuse("no_such_name", NO_SUCH_NAME, ("Average utilisation by cluster yesterday",))


def hostile(text: str) -> str:
    """Return the rule that a text breaks whoever sends it, or nothing."""
    if _SQL.search(text):
        return "sql"
    return "exfiltration" if _LINK.search(text) else ""


def _forbidden(reading: Reading, views: Views) -> Question | None:
    del views
    rules = [*reading.terms.get("refuse", ()), hostile(reading.text)]
    if "tenant_id" in reading.nouns and ({"by", "which"} & set(_links_of(reading))):
        rules.append("other_tenant")
    for rule in ("other_tenant", "scope", "instructions", "sql", "introspection", "exfiltration", "write"):
        if rule in rules and (rule != "write" or _is_order(reading)):
            return refuse(rule, *_REFUSALS[rule])
    return None


def _links_of(reading: Reading) -> tuple[str, ...]:
    return reading.terms.get("link", ())


def _is_order(reading: Reading) -> bool:
    """Tell whether a word for a change is an order rather than a piece of a question."""
    if reading.words and reading.words[0] in _QUESTION_WORDS:
        return False
    return not (reading.metrics or reading.events) or bool(_WISHES & set(reading.words)) or reading.words[0] not in (
        "show", "list", "compare",
    )  # fmt: skip


def _foreign(reading: Reading, views: Views) -> Question | None:
    del views
    return no_such_name() if reading.foreign else None


def _help(reading: Reading, views: Views) -> Question | None:
    del views
    if reading.has("help", "meaning") and reading.metrics and not reading.times:
        return Question(Treatment.ANSWER, Kind.CATALOGUE, rule="meaning", options=reading.metrics)
    if reading.has("help", "metrics") and not reading.metrics and not reading.events:
        return Question(Treatment.ANSWER, Kind.CATALOGUE, rule="help")
    return None


def _cost(reading: Reading, views: Views) -> Question | None:
    del views
    for rule in ("pairs", "distinct_times", "everything", "each_second"):
        if not reading.has("cost", rule):
            continue
        if rule == "each_second" and (_is_short(reading) or reading.has("analysis", "straggler", "slow")):
            continue
        return refuse(f"cost_{rule}", *_COSTS[rule])
    return None


SECONDS_MAXIMUM = 900


def _is_short(reading: Reading) -> bool:
    """Tell whether single seconds of a host or GPU over a few minutes are asked for."""
    placed = bool(reading.names.get("host_id") or reading.names.get("gpu_id"))
    return (
        placed
        and bool(reading.metrics)
        and all(one.seconds <= SECONDS_MAXIMUM for one in reading.times)
        and bool(reading.times)
    )


def _unmeasured(reading: Reading, views: Views) -> Question | None:
    things = reading.terms.get("unmeasured", ())
    absent = [name for name in reading.metrics if not _is_measured(name, views)]
    if not things and not absent:
        return None
    if not things and len(absent) < len(reading.metrics):
        return None
    what = " and ".join(things) if things else "this metric"
    nearest = tuple(name for name in _NEAREST if views.measures(name))[:4]
    return unanswerable(
        "not_measured",
        f"Not measured here: {what}. The views hold figures of GPUs and their errors; I do not guess.",
        nearest,
    )


_NEAREST = ("gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_power_watts", "gpu_memory_used_bytes")


def _is_measured(name: str, views: Views) -> bool:
    return name == ECC or any(views.measures(each) for each in TOGETHER.get(name, (name,)))


def _future(reading: Reading, views: Views) -> Question | None:
    del views
    if reading.future and not reading.has("analysis", "forecast", "headroom"):
        return unanswerable(
            "future",
            "The future is not recorded. I can extend a trend, marked as a forecast.",
            ("Forecast utilisation for the next four weeks",),
        )
    return None


def _backwards(reading: Reading, views: Views) -> Question | None:
    del views
    if not reading.backwards and all(one.to_ms > one.from_ms for one in reading.times):
        return None
    return clarify("backwards", "That range ends where it begins, or before. From when to when do you mean?")


def _unknown_words(reading: Reading, views: Views) -> Question | None:
    """Never guess: a word that means nothing here may change all of the question."""
    del views
    if not reading.unknown:
        return None
    if reading.metrics or reading.events or reading.has("analysis") or reading.has("vague"):
        return clarify(
            "unknown_word",
            "I do not know every word of this; which metric, thing and range do you mean?",
            ("GPU utilisation by cluster yesterday", "Errors per host in the last 24 hours"),
        )
    return unanswerable(
        "unknown_subject",
        "Nothing of that name is measured here. The views hold figures of GPUs and their errors.",
        ("Which metrics can I ask about?",),
    )


def is_bare_errors(reading: Reading) -> bool:
    """Tell whether errors are asked for without kind, range, thing or cut."""
    plain = reading.metrics == (ERROR_EVENTS,) and not reading.events
    cut = (reading.times, reading.dimensions, reading.asked, reading.names, reading.bucket, reading.aggregates)
    return plain and not any(cut) and not reading.has("analysis")
