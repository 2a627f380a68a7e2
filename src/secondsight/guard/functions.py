"""List every function that may be called: how many arguments it takes, what of them must be literal, what it gives.

A function that is not here is refused. Left out on purpose: functions that read files, tables, dictionaries, settings
or the server's state; that make rows or lists out of nothing; that sleep, throw, or give something else at each call;
that depend on how rows lie in blocks; and conversions that fail on some values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What values of an expression are, as far as it decides what may fail."""

    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    TIME = "time"
    LIST = "list"
    OTHER = "other"


class Effect(StrEnum):
    """What a function does to the meaning of its arguments."""

    KEEP = "keep"
    """The result means what its arguments mean, together."""
    SAME = "same"
    """The same, and they must be of one unit."""
    PLAIN = "plain"
    """The result is a figure of its own: a truth, a length, a part of a time."""
    CHOOSE = "choose"
    """Every second argument but the last is a condition (`if`, `multiIf`)."""
    FIRST = "first"
    """The result means what the first argument means."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One function of single values.

    Attributes:
        literals: Positions of arguments that must be literals; a pattern or text among them is short.
        checked: Rule of its own that its arguments obey, by name in `calls`, or "".
    """

    name: str
    effect: Effect
    kind: Kind
    least: int
    most: int
    literals: frozenset[int] = frozenset()
    checked: str = ""


class Family(StrEnum):
    """What an aggregate does, which decides what it may be used on."""

    COUNT = "count"
    PICK = "pick"
    LIST = "list"
    LEAST = "least"
    GREATEST = "greatest"
    MEAN = "mean"
    TOTAL = "total"
    RANK = "rank"
    SPREAD = "spread"
    DELTA = "delta"
    BITS = "bits"
    LAG = "lag"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate or window function.

    Attributes:
        parameters: Least and most parameters in the first pair of brackets.
        figures: How many leading arguments its family is about; the others order or weigh.
        window_only: True where it needs OVER.
        weighted: True where the second argument is a weight.
    """

    name: str
    family: Family
    least: int
    most: int
    parameters: tuple[int, int] = (0, 0)
    figures: int = 1
    window_only: bool = False
    weighted: bool = False


_SCALARS = """
keep number  abs:1 ceil:1-2 ceiling:1-2 floor:1-2 round:1-2@1 roundBankers:1-2@1 trunc:1-2@1 truncate:1-2@1 sqrt:1
keep number  exp:1 exp2:1 exp10:1 log:1 ln:1 log2:1 log10:1 log1p:1 pow:2 power:2 ifNotFinite:2 negate:1 sin:1 cos:1
keep number  cbrt:1 toFloat64:1!number toFloat32:1!number toFloat64OrNull:1 toFloat64OrZero:1 toFloat32OrNull:1
keep number  toFloat32OrZero:1
keep integer toInt8:1!finite toInt16:1!finite toInt32:1!finite toInt64:1!finite toUInt8:1!finite toUInt16:1!finite
keep integer toUInt32:1!finite toUInt64:1!finite toInt64OrNull:1 toInt64OrZero:1 toUInt64OrNull:1 toUInt64OrZero:1
keep integer toInt32OrNull:1 toInt32OrZero:1 toUInt32OrNull:1 toUInt32OrZero:1 toUInt8OrNull:1 toUInt8OrZero:1
keep integer toUInt16OrNull:1 toUInt16OrZero:1
keep integer bitAnd:2 bitOr:2 bitXor:2 bitNot:1 bitShiftLeft:2!bit bitShiftRight:2!bit
keep number  intDiv:2!whole intDivOrZero:2!integers modulo:2!nonzero positiveModulo:2!nonzero moduloOrZero:2
plain integer sign:1 isNaN:1 isFinite:1 isInfinite:1 bitTest:2!bit bitCount:1 isNull:1 isNotNull:1 and:2-20 or:2-20
plain integer xor:2 not:1 like:2!like ilike:2!like notLike:2!like notILike:2!like match:2!pattern
plain integer length:1 lengthUTF8:1 char_length:1 empty:1 notEmpty:1 startsWith:2 endsWith:2 position:2-3 locate:2-3
plain integer positionCaseInsensitive:2-3 positionUTF8:2-3 countSubstrings:2 countMatches:2!pattern hasToken:2!token
plain integer hasTokenCaseInsensitive:2!token multiSearchAny:2!words multiSearchAnyCaseInsensitive:2!words
plain integer has:2 hasAll:2 hasAny:2 indexOf:2 countEqual:2 arrayUniq:1 arrayCount:1-2 arrayExists:1-2 arrayAll:1-2
plain integer arrayFirstIndex:2 grouping:1-9 ascii:1 cityHash64:1-9
same number  greatest:2-20 least:2-20 coalesce:1-20 ifNull:2 plus:2 minus:2
plain integer equals:2 notEquals:2 less:2 greater:2 lessOrEquals:2 greaterOrEquals:2
keep number  multiply:2 divide:2
first other  nullIf:2 assumeNotNull:1 toNullable:1
choose other if:3 multiIf:3-41
keep text    toString:1 lower:1 upper:1 lcase:1 ucase:1 lowerUTF8:1 upperUTF8:1 trim:1 trimLeft:1 trimRight:1 ltrim:1
keep text    rtrim:1 trimBoth:1 substring:2-3!start substr:2-3!start mid:2-3!start left:2@1 right:2@1 reverse:1
keep text    leftPad:2-3@12!width lpad:2-3@12!width rightPad:2-3@12!width rpad:2-3@12!width concat:1-20
keep text    substringUTF8:2-3!start concatWithSeparator:2-20@0 replaceAll:3@12 replaceOne:3@12 replace:3@12
keep text    replaceRegexpOne:3!replacement replaceRegexpAll:3!replacement extract:2!pattern substringIndex:3@12
keep text    initcap:1 arrayStringConcat:1-2@1 formatReadableSize:1 formatReadableQuantity:1 formatReadableTimeDelta:1
keep text    formatReadableDecimalSize:1
plain other  transform:3-4!mapping
plain integer toYear:1!time toQuarter:1!time toMonth:1!time toDayOfYear:1!time toDayOfMonth:1!time week:1!time
plain integer toDayOfWeek:1-3@12!time toHour:1-2@1!time toMinute:1!time toSecond:1!time toMillisecond:1!time
plain integer toISOWeek:1!time toISOYear:1!time toWeek:1-3@12!time toYearWeek:1-3@12!time toUnixTimestamp:1-2@1!number
plain integer toUnixTimestamp64Milli:1!time toUnixTimestamp64Micro:1!time toUnixTimestamp64Nano:1!time year:1!time
plain integer toUnixTimestamp64Second:1!time toYYYYMM:1-2@1!time toYYYYMMDD:1-2@1!time toYYYYMMDDhhmmss:1-2@1!time
plain integer dateDiff:3-4@3!unit date_diff:3-4@3!unit timestampDiff:3!unit timestamp_diff:3!unit age:3-4@3!unit
plain integer month:1!time day:1!time hour:1!time minute:1!time second:1!time quarter:1!time toRelativeHourNum:1!time
plain integer toRelativeDayNum:1!time toRelativeWeekNum:1!time toRelativeMonthNum:1!time toRelativeMinuteNum:1!time
plain text   formatDateTime:2-3@2!format dateName:2!name monthName:1!time
plain time   toStartOfSecond:1!time toStartOfMinute:1!time toStartOfFiveMinutes:1!time toStartOfFiveMinute:1!time
plain time   toStartOfTenMinutes:1!time toStartOfFifteenMinutes:1!time toStartOfHour:1!time toStartOfDay:1-2@1!time
plain time   toStartOfWeek:1-3@12!time toStartOfMonth:1!time toStartOfQuarter:1!time toStartOfYear:1!time
plain time   toStartOfISOYear:1!time toMonday:1!time toLastDayOfMonth:1!time timeSlot:1!time toTimeZone:2@1!time
plain time   toStartOfInterval:2-3@2!interval dateTrunc:2-3@2!unit date_trunc:2-3@2!unit
plain time   toDate:1-2@1!moment toDate32:1!moment toDateTime:1-2@1!moment toDateTime64:2-3@12!moment
plain time   toDateOrNull:1 toDateOrZero:1 toDateTimeOrNull:1 toDateTimeOrZero:1 toDateTime64OrNull:1-3@12 date:1!moment
plain time   parseDateTimeBestEffortOrNull:1-2@1 parseDateTimeBestEffortOrZero:1-2@1
plain time   parseDateTimeBestEffort:1-2@01 parseDateTime64BestEffort:1-3@012
plain time   parseDateTime64BestEffortOrNull:1-3@12 parseDateTime64BestEffortOrZero:1-3@12
plain time   fromUnixTimestamp:1!integers fromUnixTimestamp64Milli:1-2@1!integers makeDate:2-3@012 makeDateTime:6@012345
plain time   addYears:2@1!time addQuarters:2@1!time addMonths:2@1!time addWeeks:2@1!time addDays:2@1!time
plain time   addHours:2@1!time addMinutes:2@1!time addSeconds:2@1!time subtractYears:2@1!time subtractQuarters:2@1!time
plain time   subtractMonths:2@1!time subtractWeeks:2@1!time subtractDays:2@1!time subtractHours:2@1!time
plain time   subtractMinutes:2@1!time subtractSeconds:2@1!time
plain time   now:0-1@0 now64:0-2@01 today:0 yesterday:0
plain other  toIntervalSecond:1!integers toIntervalMinute:1!integers toIntervalHour:1!integers toIntervalDay:1!integers
plain other  toIntervalWeek:1!integers toIntervalMonth:1!integers toIntervalQuarter:1!integers toIntervalYear:1!integers
keep list    array:0-1000 arraySort:1-2 arrayReverseSort:1-2 arrayReverse:1 arrayDistinct:1 arrayConcat:2-9
keep list    arraySlice:2-3@12 arrayPushBack:2 arrayPushFront:2 arrayPopBack:1 arrayPopFront:1 arrayCompact:1
keep list    arrayIntersect:2-9 arrayFilter:2 arrayMap:2 arrayDifference:1
plain list   arrayEnumerate:1 splitByChar:2!separator splitByString:2@0
keep other   arrayFirst:2 arrayLast:2 arrayFirstOrNull:2 arrayLastOrNull:2 arrayElement:2!index arrayElementOrNull:2
keep other   arrayJoin:1 tuple:1-20 tupleElement:2@1
keep number  arraySum:1-2 arrayAvg:1-2 arrayMin:1-2 arrayMax:1-2 arrayCumSum:1 arrayProduct:1
"""
"""Effect, kind, then name:arguments, @ positions of literals, ! a rule of its own."""

_AGGREGATES = """
count    count:0-9 uniq:1-9 uniqExact:1-9 uniqCombined:1-9 uniqCombined64:1-9 uniqHLL12:1-9 entropy:1-4
count    retention:1-9 windowFunnel[1-3]:2-12 uniqUpTo[1]:1-4
count    maxIntersections:2 maxIntersectionsPosition:2
pick     any:1 anyLast:1 anyHeavy:1 first_value:1 last_value:1 argMax:2 argMin:2
list     groupArray[1-1]:1 groupUniqArray[1-1]:1 groupArrayLast[1-1]:1 topK[1-1]:1 topKWeighted[1-1]:2
least    min:1
greatest max:1
mean     avg:1 avgWeighted:2w exponentialMovingAverage[1]:2 exponentialTimeDecayedAvg[1]:2o
total    sum:1 sumKahan:1
rank     quantile[0-1]:1 quantileExact[0-1]:1 quantileExactLow[0-1]:1 quantileExactHigh[0-1]:1 quantileTDigest[0-1]:1
rank     quantileBFloat16[0-1]:1 median:1 quantiles[1-20]:1 quantilesExact[1-20]:1 quantilesTDigest[1-20]:1
rank     quantileExactInclusive[0-1]:1 quantilesExactExclusive[1-20]:1 quantilesExactLow[1-20]:1
rank     quantilesExactHigh[1-20]:1 quantileExactWeighted[0-1]:2w quantilesExactWeighted[1-20]:2w
rank     quantileTDigestWeighted[0-1]:2w quantileInterpolatedWeighted[0-1]:2w
spread   stddevPop:1 stddevSamp:1 varPop:1 varSamp:1 skewPop:1 skewSamp:1 kurtPop:1 kurtSamp:1 corr:2f covarPop:2f
spread   covarSamp:2f simpleLinearRegression:2f rankCorr:2f
delta    deltaSumTimestamp:2 nonNegativeDerivative:2-3o
bits     groupBitAnd:1 groupBitOr:1 groupBitXor:1
count    row_number:0o rank:0o dense_rank:0o percent_rank:0o cume_dist:0o ntile:1o
lag      lag:1-3o lead:1-3o lagInFrame:1-3o leadInFrame:1-3o nth_value:2o
"""
"""Family, then name[parameters]:arguments; w a weight follows, o only with OVER, f all arguments are figures."""

COMBINATORS = ("OrDefault", "OrNull", "Distinct", "Array", "If")
"""Suffixes that may be added to an aggregate; those that keep or merge states are not offered."""

ARRAY_FAMILIES: Mapping[str, Family] = {
    "arraySum": Family.TOTAL,
    "arrayCumSum": Family.TOTAL,
    "arrayProduct": Family.TOTAL,
    "arrayAvg": Family.MEAN,
    "arrayMin": Family.LEAST,
    "arrayMax": Family.GREATEST,
}
"""Functions that do to a list what an aggregate does to rows."""

INTERVAL_UNITS = frozenset({"second", "minute", "hour", "day", "week", "month", "quarter", "year", "millisecond"})
LIST_AGGREGATES = frozenset({"groupArray", "groupUniqArray", "groupArrayLast", "topK", "topKWeighted"})


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    return int(least), int(most or least)


def _scalars() -> Iterator[Scalar]:
    for line in _SCALARS.strip().splitlines():
        effect, kind, *entries = line.split()
        for entry in entries:
            name, _, shape = entry.partition(":")
            shape, _, checked = shape.partition("!")
            arity, _, literals = shape.partition("@")
            least, most = _range(arity)
            yield Scalar(name, Effect(effect), Kind(kind), least, most, frozenset(map(int, literals)), checked)


def _aggregates() -> Iterator[Aggregate]:
    for line in _AGGREGATES.strip().splitlines():
        family, *entries = line.split()
        for entry in entries:
            head, _, shape = entry.partition(":")
            name, _, parameters = head.rstrip("]").partition("[")
            marks = shape.lstrip("0123456789-")
            least, most = _range(shape.removesuffix(marks) if marks else shape)
            yield Aggregate(
                name,
                Family(family),
                least,
                most,
                _range(parameters) if parameters else (0, 0),
                figures=2 if "f" in marks else 1,
                window_only="o" in marks,
                weighted="w" in marks,
            )


SCALARS: Mapping[str, Scalar] = {scalar.name: scalar for scalar in _scalars()}
AGGREGATES: Mapping[str, Aggregate] = {aggregate.name: aggregate for aggregate in _aggregates()}
_ANY_CASE: Mapping[str, str] = {name.lower(): name for name in (*SCALARS, *AGGREGATES)}


def canonical(name: str) -> str:
    """Return the one spelling of a function's name, or the name as it is where nobody knows it."""
    if name in SCALARS or name in AGGREGATES:
        return name
    return _ANY_CASE.get(name.lower(), name)


def aggregate_of(name: str) -> tuple[Aggregate, tuple[str, ...]] | None:
    """Return the aggregate a name stands for and its combinators, outermost first; None where it is none."""
    found = AGGREGATES.get(name)
    if found is not None:
        return found, ()
    for combinator in COMBINATORS:
        if name.endswith(combinator):
            inner = aggregate_of(canonical(name.removesuffix(combinator)))
            if inner is not None and combinator not in inner[1]:
                return inner[0], (combinator, *inner[1])
    return None
