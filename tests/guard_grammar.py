"""Make statements as authors and attackers send them: a grammar, hostile pieces, and mutations of what is there.

`statements` gives texts of which nobody knows whether the guard lets them through. What it lets through must give what
the caller's rows alone give; texts are made so that their order and ties decide nothing, or are marked as loose.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from guard_fixture import COUNTERS, GAUGES, STATES


@dataclass(frozen=True)
class Made:
    """One statement; `loose` where ties or the order of rows may decide what it gives."""

    sql: str
    loose: bool = False


@dataclass(frozen=True)
class Read:
    """One view to read, with a range of time that holds rows of it."""

    view: str
    time: str
    since: str
    until: str
    names: tuple[str, ...]
    figures: tuple[str, ...]


CLUSTER = ("cluster_id", "job_id", "workload_id", "owner_team", "model")
GPU = (*CLUSTER, "host_id", "gpu_id")
MEMBERS = tuple(f"{name}_{suffix}" for name in GAUGES for suffix in ("avg", "min", "max", "p95", "last", "count"))
ROLLUP = (*MEMBERS, *(f"{name}_increase" for name in COUNTERS), *(f"{name}_changes" for name in STATES))
RAW = (*GAUGES, *COUNTERS, *STATES)
READS = (
    Read(
        "gpu_telemetry_1s_secure",
        "event_time",
        "toDateTime64('2026-11-20 11:00:00', 3, 'UTC')",
        "toDateTime64('2026-11-20 12:00:00', 3, 'UTC')",
        GPU,
        RAW,
    ),
    Read(
        "gpu_telemetry_30s_secure",
        "window_start",
        "toDateTime('2026-11-06 12:00:00', 'UTC')",
        "toDateTime('2026-11-20 00:00:00', 'UTC')",
        GPU,
        ROLLUP,
    ),
    Read(
        "gpu_cluster_5m_secure",
        "window_start",
        "toDateTime('2026-11-07 00:00:00', 'UTC')",
        "toDateTime('2026-11-19 00:00:00', 'UTC')",
        CLUSTER,
        (*ROLLUP, "gpus", "coverage_ratio"),
    ),
    Read(
        "gpu_cluster_1h_secure",
        "window_start",
        "toDateTime('2026-08-20 00:00:00', 'UTC')",
        "toDateTime('2026-11-20 00:00:00', 'UTC')",
        CLUSTER,
        (*ROLLUP, "gpus", "coverage_ratio"),
    ),
    Read(
        "gpu_error_events_secure",
        "event_time",
        "toDateTime64('2026-10-21 12:00:00', 3, 'UTC')",
        "toDateTime64('2026-11-20 12:00:00', 3, 'UTC')",
        (*GPU, "kind", "severity", "message"),
        ("code",),
    ),
)

AGGREGATES = ("min", "max", "avg", "sum", "count", "uniqExact", "quantileExact(0.9)", "median", "minIf", "maxIf",
              "avgIf", "sumIf", "stddevPop", "sumOrNull", "maxOrDefault", "quantileExactIf(0.5)")  # fmt: skip
SHAPES = ("{0}", "{0} * 2", "{0} / 1000", "round({0}, 3)", "abs({0})", "if({0} > 5, {0}, 0)", "coalesce({0}, 0)",
          "greatest({0}, 1)", "toFloat64({0})", "CASE WHEN {0} > 1 THEN {0} ELSE 0 END",
          "floor({0} / 10) * 10")  # fmt: skip
TEXTS = ("{0}", "upper({0})", "concat({0}, '-x')", "substring({0}, 1, 3)", "{0} || 'y'", "length({0})",
         "multiIf({0} = 'h1', 'a', {0} = 'c1', 'b', 'c')", "replaceAll({0}, '-', '_')", "cityHash64({0}) % 7",
         "transform({0}, ['c1', 'h1'], ['x', 'y'], 'z')", "extract({0}, '([0-9]+)')",
         "toUInt32OrZero({0})")  # fmt: skip
TIMES = ("toStartOfHour({0})", "toDate({0})", "toHour({0})", "toStartOfInterval({0}, INTERVAL 2 HOUR)", "{0}",
         "toDayOfWeek({0})", "dateTrunc('day', {0})", "formatDateTime({0}, '%H')", "toMonday({0})")  # fmt: skip
WORDS = {
    "cluster_id": ("c1", "c2", "c3", "cx"),
    "host_id": ("h0", "h1", "h2", "xh1"),
    "job_id": ("job-0", "job-1"),
    "workload_id": ("wl-0", "wl-1"),
    "owner_team": ("ml", "vision"),
    "model": ("H100", "A100", "L40S", "H200"),
    "gpu_id": ("GPU-0-0001", "GPU-3-0001"),
    "kind": ("xid", "ecc", "gap"),
    "severity": ("info", "critical"),
    "message": ("xid event", "ecc foreign event"),
    "tenant_id": ("tenant_a", "tenant_b"),
}
HOSTILE_TERMS = (
    "1 = 1", "tenant_id = 'tenant_b'", "tenant_id != 'tenant_a'", "NOT (tenant_id = 'tenant_a')", "cluster_id = 'cx'",
    "cluster_id NOT IN ('c1', 'c2')", "sleep(0.1) = 0", "throwIf(tenant_id = 'tenant_b') = 0", "host_id IN raw_err",
    "host_id IN (SELECT host_id FROM raw_err)", "EXISTS (SELECT 1 FROM raw_1s)", "toUInt64(host_id) = 1",
    "intDiv(1, if(tenant_id = 'tenant_b', 0, 1)) = 1", "('tenant_b' AS tenant_id) != ''", "file('/etc/passwd') = ''",
    "1 / if(tenant_id = 'tenant_b', 0, 1) > 0", "modulo(7, if(host_id LIKE 'xh%', 0, 1)) = 0",
    "(SELECT count() FROM raw_1s) > 0", "CAST(if(tenant_id = 'tenant_b', 'x', '1') AS UInt8) = 1", "hostName() = ''",
    "host_id IN numbers(3)", "notIn(host_id, raw_err)", "getSetting('readonly') = 1", "match(host_id, 'x' || host_id)",
)  # fmt: skip
HOSTILE_TAILS = (
    " SETTINGS max_threads = 1", " FORMAT JSON", " INTO OUTFILE '/x'", "; SELECT 1", "; DROP TABLE raw_1s",
    " UNION ALL SELECT * FROM raw_1s", " LIMIT (SELECT 1)", " EXCEPT SELECT * FROM raw_err", " OR 1 = 1", " -- ",
    " /*", " WITH TOTALS", " LIMIT 5 WITH TIES",
)  # fmt: skip
BASES = ("raw_1s", "raw_err", "default.raw_1h", "system.tables", "numbers(10)", "merge('default', '.*')",
         "'/etc/passwd'", "GPU_TELEMETRY_1S_SECURE", "view(SELECT 1)", "values('a Int', 1)")  # fmt: skip
ALIASES = ("tenant_id", "cluster_id", "event_time", "window_start", "gpu_cluster_1h_secure", "host_id", "__s", "a.b")
LOOSE = re.compile(r"\b(any|anyLast|argM\w+|topK|first_value|last_value|lag\w*|row_number|groupArray|LIMIT|OFFSET|"
                   r"rank|deltaSum\w+|quantile|quantileTDigest|groupUniqArray|windowFunnel|ASOF|ntile|uniq|ON)"
                   r"\b")  # fmt: skip
TOKENS = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)


class Grammar:
    """Draws statements from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def query(self) -> Made:
        """Return one statement of a form that authors use."""
        forms = (self.grouped, self.grouped, self.rows, self.nested, self.joined, self.united, self.named, self.ranked,
                 self.among, self.spread)  # fmt: skip
        return self._one(forms)()

    def grouped(self) -> Made:
        read = self._one(READS)
        keys = self._keys(read)
        figures = self._aggregated(read)
        names = [f"{key} AS k{index}" for index, key in enumerate(keys)]
        columns = ", ".join([*names, *(f"{figure} AS f{index}" for index, figure in enumerate(figures))])
        sql = f"SELECT {columns} FROM {read.view}{self._where(read)}"
        if keys:
            by = ", ".join(f"k{index}" for index in range(len(keys)))
            sql += f" GROUP BY {by}{self._maybe(' WITH ROLLUP', 0.05)}"
            sql += self._maybe(f" HAVING f0 > {self._chance.randrange(5)}", 0.2)
            sql += self._maybe(f" ORDER BY {by}, f0", 0.5)
        return Made(sql)

    def rows(self) -> Made:
        read = self._one(READS)
        columns = [*self._some((*read.names, read.time, *read.figures), 1, 5)]
        order = ", ".join(str(index + 1) for index in range(len(columns)))
        distinct = self._maybe("DISTINCT ", 0.3)
        limit = f" LIMIT {self._chance.randrange(1, 50)}"
        if self._chance.random() < 0.1:
            columns, order, distinct, limit = ["*"], "1, 2, 3, 4, 5, 6", "", ""
        return Made(
            f"SELECT {distinct}{', '.join(columns)} FROM {read.view}{self._where(read)} ORDER BY {order}{limit}"
        )

    def nested(self) -> Made:
        inner = self.grouped().sql
        names = sorted(set(re.findall(r"AS ([kf]\d)", inner)))
        wanted = self._some(names, 1, 3)
        function = self._one(("max", "min", "count", "sum", "avg", "uniqExact"))
        if self._chance.random() < 0.5:
            return Made(f"SELECT {function}({wanted[0]}) AS g FROM ({inner}) AS x")
        return Made(
            f"SELECT {', '.join(wanted)} FROM ({inner}) WHERE {wanted[0]} IS NOT NULL ORDER BY {', '.join(wanted)}"
        )

    def joined(self) -> Made:
        left, right = self._one(READS), self._one(READS)
        shared = [name for name in left.names if name in right.names and name != "model"]
        key = self._one(shared)
        kind = self._one(("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT ANTI JOIN", "LEFT SEMI JOIN", "RIGHT JOIN"))
        sides = [
            f"(SELECT {key} AS k, {self._one(self._aggregated(read))} AS f FROM {read.view}{self._where(read)}"
            " GROUP BY k)"
            for read in (left, right)
        ]
        columns = "a.k AS k, a.f AS x" if "ANTI" in kind or "SEMI" in kind else "a.k AS k, a.f AS x, b.f AS y"
        return Made(f"SELECT {columns} FROM {sides[0]} AS a {kind} {sides[1]} AS b ON a.k = b.k ORDER BY k")

    def united(self) -> Made:
        arms = []
        for read in self._some(READS, 2, 3):
            name = self._one(read.names)
            arms.append(f"SELECT {name} AS k, count() AS c FROM {read.view}{self._where(read)} GROUP BY k")
        words = (" UNION ALL ", " UNION DISTINCT ", " INTERSECT ", " EXCEPT ")
        return Made(self._one(words).join(arms))

    def named(self) -> Made:
        inner, other = self.grouped().sql, self.grouped().sql
        names = sorted(set(re.findall(r"AS (k\d)", inner))) or ["f0"]
        sql = f"WITH one AS ({inner}), two AS ({other}) SELECT {', '.join(names)} FROM one"
        sql += self._maybe(" WHERE (SELECT count() FROM two) >= 0", 0.4)
        return Made(f"{sql} ORDER BY {', '.join(names)}")

    def ranked(self) -> Made:
        read = self._one([read for read in READS if "gpu_id" in read.names])
        function = self._one(("row_number()", "rank()", "count()", f"max({read.figures[0]})", f"min({read.time})"))
        order = f"{read.time}, host_id, gpu_id, job_id, cluster_id"
        window = f"{function} OVER (PARTITION BY {self._one(read.names)} ORDER BY {order})"
        columns = f"host_id, gpu_id, {read.time}"
        if self._chance.random() < 0.3:
            return Made(f"SELECT {columns} FROM {read.view}{self._where(read)} QUALIFY {window} <= 3 ORDER BY 1, 2, 3")
        return Made(f"SELECT {columns}, {window} AS w FROM {read.view}{self._where(read)} ORDER BY 1, 2, 3, 4 LIMIT 30")

    def among(self) -> Made:
        outer, inner = self._one(READS), self._one(READS)
        key = self._one([name for name in outer.names if name in inner.names])
        negated = self._maybe("NOT ", 0.4)
        sub = f"SELECT {key} FROM {inner.view}{self._where(inner)}"
        return Made(
            f"SELECT {key} AS k, count() AS c FROM {outer.view}{self._where(outer)} AND {key} {negated}IN ({sub})"
            " GROUP BY k ORDER BY k"
        )

    def spread(self) -> Made:
        read = self._one(READS)
        name, key = self._some(read.names, 2, 2)
        lists = f"arraySort(groupUniqArray(100)({key})) AS ks"
        inner = f"SELECT {name} AS k, {lists} FROM {read.view}{self._where(read)} GROUP BY k"
        if self._chance.random() < 0.5:
            return Made(f"SELECT k, v FROM ({inner}) AS x ARRAY JOIN ks AS v ORDER BY k, v")
        return Made(
            f"SELECT k, length(ks) AS n, arrayFilter(v -> v != 'h1', ks) AS rest FROM ({inner}) AS x ORDER BY k"
        )

    def spoil(self, made: Made) -> Made:
        """Return a statement with one hostile piece in it."""
        sql = made.sql
        what = self._chance.randrange(6)
        if what == 0:
            sql = self._swap(sql, r"\bWHERE ", f"WHERE {self._one(HOSTILE_TERMS)} {self._one(('AND', 'OR'))} ")
        elif what == 1:
            sql += self._one(HOSTILE_TAILS)
        elif what == 2:
            sql = self._swap(sql, r"\bgpu_\w+_secure\b", self._one(BASES))
        elif what == 3:
            sql = self._swap(sql, r"\bAS [kfgcx]\d?\b", f"AS {self._one(ALIASES)}")
        elif what == 4:
            sql = self._swap(
                sql, r"\b(min|max|count|avg|upper|round)\(", self._one(("sleep(", "file(", "f(", "throwIf("))
            )
        else:
            sql = f"WITH {self._one(ALIASES)} AS (SELECT 'tenant_a' AS a) {sql}"
        return Made(sql, made.loose)

    def mutate(self, made: Made) -> Made:
        """Return a statement with one small change that may or may not change its meaning."""
        sql = made.sql
        mutations = (
            self._letters,
            self._spaces,
            self._quotes,
            self._wrapped,
            self._in_cte,
            self._doubled,
            self._other_word,
            self._other_function,
            self._noise,
            self._other_view,
        )
        sql = self._one(mutations)(sql)
        return replace(made, sql=sql, loose=made.loose or LOOSE.search(sql) is not None)

    def _letters(self, sql: str) -> str:
        keywords = r"\b(select|from|where|group by|order by|and|count|max|min|sum|avg|in|as|limit|join|on|union all)\b"
        flip = self._one((str.lower, str.upper, str.title))
        return re.sub(keywords, lambda match: flip(match[0]), sql, flags=re.IGNORECASE)

    def _spaces(self, sql: str) -> str:
        fillers = ("\n", "\t", "  ", " /* x */ ", " -- y\n", " /* a /* b */ c */ ", "\r\n", " # z\n")
        tokens = TOKENS.findall(sql)
        spaces = [index for index, token in enumerate(tokens) if token.isspace()]
        for index in self._chance.sample(spaces, min(len(spaces), 4)):
            tokens[index] = self._one(fillers)
        return "".join(tokens)

    def _quotes(self, sql: str) -> str:
        mark = self._one(("`", '"'))
        return re.sub(
            r"\b(?:gpu_\w+_secure|host_id|cluster_id|job_id|k\d|tenant_id)\b", lambda m: f"{mark}{m[0]}{mark}", sql
        )

    def _wrapped(self, sql: str) -> str:
        return f"SELECT * FROM ({sql}){self._maybe(' AS w', 0.5)}"

    def _in_cte(self, sql: str) -> str:
        return f"WITH z AS ({sql}) SELECT * FROM z"

    def _doubled(self, sql: str) -> str:
        return (
            f"{sql} UNION ALL {sql}"
            if "ORDER BY" not in sql
            else f"SELECT * FROM ({sql}) UNION ALL SELECT * FROM ({sql})"
        )

    def _other_word(self, sql: str) -> str:
        word = self._one([word for words in WORDS.values() for word in words])
        return self._swap(sql, r"'(?:c1|c2|tenant_a|h1|h0|job-0|ml|H100|xid)'", f"'{word}'")

    def _other_function(self, sql: str) -> str:
        return self._swap(
            sql, r"\b(min|max|avg|sum|count|uniqExact)\(", f"{self._one(('min', 'max', 'avg', 'sum', 'any'))}("
        )

    def _other_view(self, sql: str) -> str:
        return self._swap(sql, r"\bgpu_\w+_secure\b", self._one(READS).view)

    def _noise(self, sql: str) -> str:
        tokens = TOKENS.findall(sql)
        if not tokens:
            return sql
        at = self._chance.randrange(len(tokens))
        what = self._chance.randrange(3)
        if what == 0:
            del tokens[at]
        elif what == 1:
            tokens.insert(at, tokens[self._chance.randrange(len(tokens))])
        else:
            other = self._chance.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        return "".join(tokens)

    def _keys(self, read: Read) -> list[str]:
        names = [self._one(TEXTS).format(name) for name in self._some(read.names, 0, 2)]
        return names + ([self._one(TIMES).format(read.time)] if self._chance.random() < 0.4 else [])

    def _aggregated(self, read: Read) -> list[str]:
        figures = []
        for figure in self._some(read.figures, 1, 2):
            function, shape = self._one(AGGREGATES), self._one(SHAPES).format(figure)
            name, bracket, parameter = function.partition("(")
            call = f"{name}{bracket}{parameter}"
            condition = f", {self._term(read)}" if name.endswith("If") else ""
            figures.append(f"{call}({shape}{condition})")
        if self._chance.random() < 0.4 and read.figures is not RAW and "code" not in read.figures:
            gauge = self._one(tuple(GAUGES))
            figures.append(f"sum({gauge}_avg * {gauge}_count) / sum({gauge}_count)")
        return [*figures, "count()"] if self._chance.random() < 0.5 else figures

    def _where(self, read: Read) -> str:
        sql = f" WHERE {read.time} >= {read.since} AND {read.time} < {read.until}"
        for _ in range(self._chance.choice((0, 0, 1, 2))):
            sql += f" AND {self._term(read)}"
        return sql

    def _term(self, read: Read) -> str:
        if self._chance.random() < 0.4:
            figure = self._one(read.figures)
            return f"{figure} {self._one(('>', '<', '!=', 'IS NOT NULL OR 1 <'))} {self._chance.randrange(100)}".join(
                "()"
            )
        name = self._one(("tenant_id", *read.names)) if self._chance.random() < 0.1 else self._one(read.names)
        words = WORDS[name]
        forms = (
            f"{name} = '{self._one(words)}'",
            f"{name} != '{self._one(words)}'",
            f"{name} IN ('{words[0]}', '{words[1]}')",
            f"{name} NOT IN ('{words[0]}')",
            f"{name} LIKE '%{words[0][:1]}%'",
            f"NOT ({name} = '{words[0]}' OR {name} = '{words[1]}')",
            f"startsWith({name}, '{words[0][:1]}')",
        )
        return self._one(forms)

    def _swap(self, sql: str, pattern: str, by: str) -> str:
        found = list(re.finditer(pattern, sql))
        if not found:
            return sql
        match = self._one(found)
        return f"{sql[: match.start()]}{by}{sql[match.end() :]}"

    def _one(self, options: Sequence) -> object:
        return self._chance.choice(options)

    def _some(self, options: Sequence, least: int, most: int) -> list:
        return self._chance.sample(list(options), self._chance.randint(least, min(most, len(options))))

    def _maybe(self, text: str, share: float) -> str:
        return text if self._chance.random() < share else ""


def statements(seed: int, seeds: Sequence[str]) -> Iterator[Made]:
    """Give statements without end: of the grammar, spoilt, mutated, and made from the texts of `seeds`."""
    chance = random.Random(seed)
    grammar = Grammar(chance)
    while True:
        made = grammar.query() if chance.random() < 0.7 else Made(chance.choice(seeds), loose=True)
        if chance.random() < 0.25:
            made = grammar.spoil(made)
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            made = grammar.mutate(made)
        yield made
