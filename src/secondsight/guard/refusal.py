"""Say why a statement was refused: a closed list of codes with fixed messages.

No message repeats a text of the statement, a name the author may not know of, or a word of the engine. A thing that
does not exist and a thing that is not the caller's have the same message; the hint then has the name as its author
wrote it, whichever of both it is, and names near it that the author may use.
"""

from collections.abc import Iterable
from enum import StrEnum

from secondsight.errors import Rejected
from secondsight.query.hints import near


class Rule(StrEnum):
    """The step that refused, in the order in which steps run."""

    INPUT = "input"
    TOKENS = "tokens"
    TREE = "tree"
    FUNCTIONS = "functions"
    NAMES = "names"
    ALIASES = "aliases"
    LINEAGE = "lineage"
    TIME = "time"
    JOINS = "joins"
    LIMITS = "limits"
    SCOPE = "scope"
    VERIFY = "verify"


MESSAGES: dict[str, tuple[str, str]] = {
    "too_long": ("the statement is too long or nested too deeply", "ask for less at once, or in several statements"),
    "not_plain_text": (
        "the statement holds characters that are read in more than one way",
        "use plain ASCII outside of quoted texts, no control characters",
    ),
    "not_a_query": ("only one SELECT statement can be asked", "begin with SELECT or WITH ... SELECT"),
    "several_statements": ("only one statement can be asked at once", "send them one by one"),
    "not_understood": (
        "the statement cannot be read",
        "check brackets, quotes and commas; LIMIT BY with LIMIT: wrap it",
    ),
    "clause_not_offered": (
        "the statement has a clause that is not offered",
        "no settings, formats, parameters, samples, table functions or tables in IN; IN takes a list or (SELECT ...)",
    ),
    "function_not_offered": (
        "the statement calls a function that is not offered, or in a form that is not",
        "the guide to SQL lists the functions; parameters and patterns must be literals",
    ),
    "function_may_fail": (
        "the statement converts or divides in a way that fails on some rows",
        "use toFloat64OrNull, toUInt64OrZero, parseDateTimeBestEffortOrNull, intDivOrZero, or / instead",
    ),
    "unbounded_list": (
        "a list without an upper size is not offered",
        "give the size: groupArray(100)(...), groupUniqArray(100)(...), topK(10)(...)",
    ),
    "unknown_name": ("no such view or column", "the views and their columns are listed under GET /v1/sql/views"),
    "no_view": ("the statement reads no view", "name one of the views after FROM; GET /v1/sql/views lists them"),
    "ambiguous_name": ("a name stands for more than one thing", "give each its own alias, and qualify columns"),
    "reserved_alias": (
        "an alias takes the name of a view, of a column of that view, or of a column that scopes rows",
        "choose another alias; columns keep their own names",
    ),
    "correlated": ("a subquery uses a column of the query around it", "use a JOIN, or IN (SELECT ...)"),
    "illegal_aggregate": ("this aggregate of this metric means nothing", ""),
    "mixed_units": ("figures of different units are put into one", "keep one column for each unit"),
    "unlike_figures": (
        "figures of different meaning are put into one and then aggregated",
        "aggregate each by itself: samples, window means, counters and states do not mix",
    ),
    "no_time_range": ("a view of single seconds is read without a closed time range of its own", ""),
    "range_too_wide": ("the time range is too wide for a view of single seconds", ""),
    "join_not_offered": (
        "a join needs an equality between both sides on columns of many values",
        "join on gpu_id, host_id, job_id or the time; aggregate one side first where it is joined by few values",
    ),
    "too_complex": ("the statement reads or repeats too much at once", "fewer joins, subqueries and repeated parts"),
    "fill_too_wide": (
        "WITH FILL needs literal FROM, TO and STEP, and few enough steps",
        "state all three; at most 10000 steps",
    ),
    "limit_not_offered": ("LIMIT and OFFSET take whole numbers up to one million", "a result has at most 10000 rows"),
    "scope_not_offered": (
        "this view cannot be read within your grant",
        "ask for a view that knows what you were granted",
    ),
    "not_verified": ("the statement could not be verified", "write it in a simpler way"),
}
"""Code -> message and hint; a hint of "" is given where the refusal is raised."""

HINTS: dict[str, str] = {
    "counter": "a counter only rises: use its METRIC_increase column, or deltaSumTimestamp(METRIC, "
    "toUnixTimestamp64Milli(event_time)) GROUP BY gpu_id",
    "mean": "a mean of window means is sum(METRIC_avg * METRIC_count) / sum(METRIC_count)",
    "again": "means and ratios cannot be averaged or added again: compute them from the rows in one step",
    "percentile": "a percentile is not averaged, added or ranked again: use max of METRIC_p95, or quantile of seconds",
    "level": "a level is not added up over time: use avg, or sum at each instant with the time column in GROUP BY",
    "extreme": "extremes and last values of windows are not averaged or added up over time: use max, min, or a mean",
    "state": "a state is no quantity: count rows for each value, test bits with bitTest, or take the last one",
    "share": "weigh a share by the GPUs behind it: sum(coverage_ratio * gpus) / sum(gpus)",
    "weight": "the mean of a metric is weighed by the count of the same metric",
    "coarser": "bound the time with >= and < (literals or now() - INTERVAL) by at most {days} days, or use {views}",
    "recent": "bound the time with >= and < (literals or now() - INTERVAL) by at most {days} days",
}
"""Hints that name the better query; METRIC stands for the name of a metric."""


class Refused(Rejected):
    """A statement that is not run.

    Attributes:
        rule: The step of the guard that refused.
        name: What the author wrote that is of nothing, or "".
    """

    def __init__(self, code: str, rule: Rule, hint: str = "", name: str = "") -> None:
        message, fixed = MESSAGES[code]
        super().__init__(code, message, hint or fixed)
        self.rule = rule
        self.name = name


def unknown(name: str, known: Iterable[str]) -> Refused:
    """Return the refusal of a name that stands for nothing, beside those that its author may use there."""
    meant = near(name, known)
    told = f"; near: {', '.join(meant)}" if meant else ""
    return Refused(
        "unknown_name", Rule.NAMES, f"nothing here is called {name!r}{told}; {MESSAGES['unknown_name'][1]}", name
    )
