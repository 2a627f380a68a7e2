"""Rows of clusters worked out slowly from rollup rows of entities, one row at a time: what the tables must equal."""

from collections import defaultdict

from secondsight.catalog.metric import RollupSet

MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")


def pool(metrics, rows, width_ms, products):
    """Return {(window start, (job, workload, team, model), product, part): row}.

    Args:
        metrics: Scalars that rows may have.
        rows: What `process_oracle.roll_up` gives, with `source_rank` in each row.
        width_ms: Width of a window.
        products: Entity -> its product.
    """
    groups = defaultdict(list)
    for (host, entity, part, collector, start, owner), row in rows.items():
        source = (row["source_rank"], collector)
        groups[start, owner, products.get(entity, ""), part].append(((host, entity), source, row))
    sources = defaultdict(list)
    for (host, entity, part, collector, start, _), row in rows.items():
        sources[host, entity, part, start].append(((row["source_rank"], collector), row))
    return {key: _row(metrics, members, sources, key, rows, width_ms) for key, members in groups.items()}


def _row(metrics, members, sources, key, rows, width_ms):
    start, _, _, part = key
    first = {place: min(source for other, source, _ in members if other == place) for place, _, _ in members}
    counted = [(place, row) for place, source, row in members if source == first[place]]
    end_ms = start + width_ms
    entities = {entity for (_, entity), _, _ in members}
    made = {
        "gpus": len(entities),
        "samples": sum(row["samples"] for _, row in counted),
        "covered_ms": sum(row["covered_ms"] for _, row in counted),
        "expected_ms": sum(
            _expected(
                row, [other for (source, other) in sources[*place, part, start] if source == first[place]], end_ms
            )
            for place, row in counted
        ),
        "first_event_time": min(row["first_event_time"] for _, _, row in members),
        "last_event_time": max(row["last_event_time"] for _, _, row in members),
        **{name: {} for name in (*MAPS, "sketches", "gpus_other")},
    }
    for metric in metrics:
        _metric(made, metric, members, {place: _best(sources[*place, part, start], metric) for place, _, _ in members})
    return made


def _best(found, metric):
    """Return the first collector that has a metric of an entity, or None."""
    return min((source for source, row in found if f"{metric.name}_last" in row), default=None)


def _expected(row, others, end_ms):
    """Return the time from a row's first sample to its last, or what it covers where another owner's lies between."""
    span = (row["first_event_time"], min(row["last_event_time"] + row["interval_ms"], end_ms))
    for other in others:
        theirs = (other["first_event_time"], min(other["last_event_time"] + other["interval_ms"], end_ms))
        if other is not row and span[0] < theirs[1] and theirs[0] < span[1]:
            return row["covered_ms"]
    return max(span[1] - span[0], row["covered_ms"])


def _metric(made, metric, members, best):
    name = metric.name
    mine = [(place[1], row) for place, source, row in members if source == best[place] and f"{name}_last" in row]
    if not mine:
        return
    count = len({entity for entity, _ in mine})
    if count != made["gpus"]:
        made["gpus_other"][name] = count
    rows = [row for _, row in mine]
    covered = sum(row["covered_other"].get(name, row["covered_ms"]) for row in rows)
    if covered != made["covered_ms"]:
        made["covered_other"][name] = covered
    _gauge(made, metric, rows)
    _increase(made, name, rows)
    for kept in ("resets", "changes", "state_ms"):
        items = [(item, number) for row in rows for item, number in row[kept].items()]
        for item, number in items:
            if item.partition("=")[0].partition("&")[0] == name:
                made[kept][item] = made[kept].get(item, 0) + number


def _gauge(made, metric, rows):
    name = metric.name
    if metric.rollup in (RollupSet.LEVEL, RollupSet.DISTRIBUTION):
        made[f"{name}_sum"] = sum(row[f"{name}_sum"] for row in rows)
        made[f"{name}_min"] = min(row[f"{name}_min"] for row in rows)
        made[f"{name}_max"] = max(row[f"{name}_max"] for row in rows)
    if metric.rollup is RollupSet.DISTRIBUTION:
        made["sketches"][name] = [pair for row in rows for pair in row["sketches"][name]]


def _increase(made, name, rows):
    paired = [row for row in rows if f"{name}_increase" in row]
    if paired:
        made[f"{name}_increase"] = sum(row[f"{name}_increase"] for row in paired)
        spanned = sum(row["increase_other"].get(name, row["covered_ms"]) for row in paired)
        if spanned != made["covered_ms"]:
            made["increase_other"][name] = spanned
