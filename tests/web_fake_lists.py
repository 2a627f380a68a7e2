"""What the small server of the pages says beside samples: places, the map, events, custody, answers in words."""

import base64
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from zlib import crc32

METRIC_RANGE = {"gpu_temperature_celsius": (0.0, 100.0), "gpu_utilization_ratio": (0.0, 1.0)}
XID_AGO_MS = 752_000
XID_STAYS_MS = 90_000
_FELL_MS = [0]
HOT = 24
"""The card that is too hot."""
QUALITY = {"partial": False, "warnings": []}


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of the small fleet."""

    number: int
    host: str
    cluster: str
    index: int
    status: str

    @property
    def gpu_id(self) -> str:
        return f"GPU-{self.number:08x}-9e3b-4d18-b6a4-2f90c8d1e37b"

    @property
    def job(self) -> str:
        return "" if self.number % 11 == 0 else f"job-{48100 + self.number // 24}"

    @property
    def model(self) -> str:
        """The jobs of two models take turns."""
        return self.job and ("tern-13b", "tern-7b")[self.number // 24 % 2]


Values = Mapping[str, Callable[[int, int], float]]
Iso = Callable[[int], str]


def rack_of(card: Card) -> str:
    return f"r{card.number // 64 + 1:02d}"


def layout_of(cards: Sequence[Card]) -> str:
    """Return the name of which cards there are."""
    return f"layout-{len(cards)}-{crc32(bytes(str([card.number for card in cards]), 'ascii')):08x}"


def cell(card: Card) -> dict[str, Any]:
    """Return where a card is, as maps say it."""
    return {
        "tenantId": "north",
        "clusterId": card.cluster,
        "rack": rack_of(card),
        "hostId": card.host,
        "gpuId": card.gpu_id,
        "index": card.index,
    }


def hosts_of(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """Return where cards are, those of a host together."""
    found = []
    for _, group in groupby(cards, lambda card: card.host):
        members = list(group)
        place = cell(members[0])
        del place["gpuId"], place["index"]
        found.append(place | {"gpuIds": [one.gpu_id for one in members], "indexes": [one.index for one in members]})
    return found


def frame(cards: Sequence[Card], query: Mapping[str, str], values: Values, newest_ms: int, iso: Iso) -> dict[str, Any]:
    """Return one second of the map, one byte a GPU."""
    metric = query.get("metric", "gpu_utilization_ratio")
    low, high = METRIC_RANGE.get(metric, (0.0, 100e9 if metric.endswith("bytes") else 800.0))
    at_ms = int(query.get("at", newest_ms))
    known = [values[metric](card.number, at_ms // 1000) if card.status == "reporting" else math.nan for card in cards]
    coded = bytes(
        0 if math.isnan(value) else 1 + round(254 * min(1, max(0, (value - low) / (high - low)))) for value in known
    )
    layout = layout_of(cards)
    naming = "" if query.get("layout") == layout else query.get("naming", "cells")
    return {
        "at": iso(at_ms),
        "behindMs": max(0, int(time.time() * 1000) - at_ms),
        "metric": metric,
        "unit": "",
        "low": low,
        "high": high,
        "layout": layout,
        "cells": [cell(card) for card in cards] if naming == "cells" else None,
        "hosts": hosts_of(cards) if naming == "hosts" else None,
        "count": len(cards),
        "frame": base64.b64encode(coded).decode(),
        "links": {},
    }


def verdict(card: Card) -> dict[str, Any]:
    """Return how a card is, by whether it tells."""
    if card.status == "reporting":
        return {"verdict": "healthy", "evidence": []}
    text = "it was to send samples and does not"
    return {"verdict": "unavailable", "evidence": [{"rule": "no_telemetry", "since": None, "text": text}]}


def health_of(cards: Sequence[Card]) -> dict[str, Any]:
    """Return how many cards are how, and why."""
    silent, hot = sum(card.status != "reporting" for card in cards), sum(card.number == HOT for card in cards)
    counts = {"unavailable": silent, "degraded": hot, "unknown": 0, "healthy": len(cards) - silent - hot}
    worst = next(name for name, count in counts.items() if count) if cards else "unknown"
    reasons = {name: count for name, count in (("no_telemetry", silent), ("thermal_hardware", hot)) if count}
    return {"worst": worst, **counts, "reasons": reasons}


def place(cards: Sequence[Card], cluster: str, host: str | None = None) -> dict[str, Any]:
    """Return sums over the GPUs of a cluster or a host."""
    statuses = ("reporting", "silent", "lost", "unknown")
    return {
        "tenantId": "north",
        "clusterId": cluster,
        "hostId": host,
        "hosts": len({card.host for card in cards}),
        "gpus": {"total": len(cards)} | {name: sum(card.status == name for card in cards) for name in statuses},
        "health": health_of(cards),
        "powerWatts": 560.0 * len(cards),
        "utilizationRatio": 0.84,
        "links": {},
    }


def grouped(cards: Iterable[Card], name: str) -> dict[str, list[Card]]:
    found: dict[str, list[Card]] = {}
    for card in cards:
        found.setdefault(getattr(card, name), []).append(card)
    return found


def clusters(cards: Sequence[Card], quality: Mapping[str, Any]) -> dict[str, Any]:
    found = [place(members, cluster) for cluster, members in sorted(grouped(cards, "cluster").items())]
    return {"clusters": found, "total": len(found), "nextCursor": None, **quality}


def cluster(cards: Sequence[Card], name: str, quality: Mapping[str, Any]) -> dict[str, Any]:
    members = [card for card in cards if card.cluster == name]
    hosts = [place(on_host, name, host) for host, on_host in grouped(members, "host").items()]
    return {
        "cluster": place(members, name),
        "hosts": hosts,
        "total": len(hosts),
        "nextCursor": None,
        **quality,
    }


def event(card: Card, time: str, **more: Any) -> dict[str, Any]:
    """Return one event of a GPU."""
    return {
        "metric": "gpu_xid",
        "kind": "gpu",
        "tenantId": "north",
        "clusterId": card.cluster,
        "hostId": card.host,
        "entityId": card.gpu_id,
        "gpuId": card.gpu_id,
        "part": "",
        "time": time,
        "version": 1,
        "jobId": card.job,
        "workloadId": "",
        "team": "",
        "model": "",
        "attributes": {},
        "collectorId": card.host,
        "source": "kmsg",
        "ingestTime": time,
        "endTime": time,
        "code": 79,
        "meaning": None,
        "severity": "critical",
    } | more


def fell_ms(now_ms: int) -> int:
    """Return when the lost GPUs fell: the same instant in every answer for as long as it is near enough."""
    if now_ms - _FELL_MS[0] > XID_AGO_MS + XID_STAYS_MS:
        _FELL_MS[0] = now_ms - XID_AGO_MS
    return _FELL_MS[0]


def events(cards: Sequence[Card], query: Mapping[str, str], now_ms: int, iso: Iso, quality: Any) -> dict[str, Any]:
    """Return an Xid of each GPU that is lost, and a finding that lasts of one that reports."""
    fell = iso(fell_ms(now_ms))
    found = [event(card, fell) for card in cards if card.status == "lost"]
    found += [
        event(
            card,
            iso(now_ms - 200_000),
            metric="gpu_thermal_finding",
            code=1,
            meaning="hardware thermal slowdown",
            severity="error",
            endTime=None,
        )
        for card in cards
        if card.number == HOT
    ]
    wanted = {
        name: query[name].split(",")
        for name in ("cluster", "host", "gpu", "job", "severity", "metric")
        if name in query
    }
    keys = {"cluster": "clusterId", "host": "hostId", "gpu": "gpuId", "job": "jobId"}
    mine = [one for one in found if all(one[keys.get(name, name)] in names for name, names in wanted.items())]
    mine.sort(key=lambda one: one["time"], reverse=True)
    return {"events": mine, "total": len(mine), "nextCursor": None, **QUALITY, **quality}


def stories(cards: Sequence[Card], now_ms: int, iso: Iso) -> dict[str, Any]:
    lost = [card for card in cards if card.status == "lost"]
    found = [
        {
            "level": "gpu",
            "tenantId": "north",
            "clusterId": card.cluster,
            "rack": rack_of(card),
            "hostId": card.host,
            "entityId": card.gpu_id,
            "startTime": iso(now_ms - XID_AGO_MS),
            "endTime": None,
            "reason": "source",
            "expected": False,
            "entities": 1,
            "hosts": 1,
            "expectedSamples": XID_AGO_MS // 1000,
        }
        for card in lost
    ]
    reasons = {"source": len(found)} if found else {}
    missing = sum(one["expectedSamples"] for one in found)
    return {
        "gaps": [],
        "stories": found,
        "total": len(found),
        "missing": missing,
        "shed": 0,
        "reasons": reasons,
        "nextCursor": None,
    }


def ledger(cards: Sequence[Card], now_ms: int, iso: Iso) -> dict[str, Any]:
    rows = {"rows": 720, "values": 33_900}
    none = {"rows": 0, "values": 0}
    entries = [
        {
            "tenantId": "north",
            "clusterId": members[0].cluster,
            "hostId": host,
            "collectorId": host,
            "minute": iso(now_ms // 60_000 * 60_000 - 60_000),
            "produced": rows,
            "stored": rows,
            "merged": none,
            "shed": [],
            "quarantined": [],
            "deadLettered": [],
            "inFlight": none,
            "difference": none,
            "incidents": 0,
            "balanced": True,
            "spools": [],
        }
        for host, members in grouped(cards, "host").items()
    ]
    return {"entries": entries, "waiting": [], "short": [], "said": 0, "total": len(entries), "nextCursor": None}


def collectors(cards: Sequence[Card], now_ms: int, iso: Iso) -> dict[str, Any]:
    found = [
        {
            "tenantId": "north",
            "clusterId": members[0].cluster,
            "hostId": host,
            "collectorId": host,
            "watermark": iso(now_ms - 12_000),
            "newestEventTime": iso(now_ms - 2_000),
            "lastIngestTime": iso(now_ms - 1_000),
            "rollupThrough": iso(now_ms - 60_000),
            "lagMs": 2_000,
            "idle": False,
            "backlog": False,
        }
        for host, members in grouped(cards, "host").items()
    ]
    return {"collectors": found, "total": len(found), "nextCursor": None}


def top(cards: Sequence[Card], query: Mapping[str, str], values: Values, second: int, quality: Any) -> dict[str, Any]:
    metric, by = query["metric"], query.get("by", "gpu")
    rows: list[dict[str, Any]] = []
    if metric in values:
        names = {"gpu": "gpu_id", "job": "job", "host": "host"}
        groups = grouped((card for card in cards if card.status == "reporting"), names[by])
        figures = [(values[metric](group[0].number, second), name, group[0]) for name, group in groups.items() if name]
        figures.sort(key=lambda each: each[0], reverse=query.get("order") != "lowest")
        for rank, (value, name, card) in enumerate(figures[: int(query.get("n", "5"))], 1):
            where = {"gpuId": name, "hostId": card.host} if by == "gpu" else {f"{by}Id": name}
            rows.append({"rank": rank, "value": value, "tenantId": "north", "links": {}} | where)
    coverage = {"expectedSamples": 1, "storedSamples": 1, "ratio": 1.0, "gaps": 0, "shed": 0}
    told = {"metric": metric, "unit": "", "aggregate": "avg", "window": "5m", "rows": rows, "coverage": coverage}
    return told | QUALITY | dict(quality)


def search(cards: Sequence[Card], text: str) -> dict[str, Any]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for card in cards:
        for kind, name in (("cluster", card.cluster), ("host", card.host), ("gpu", card.gpu_id), ("job", card.job)):
            if name and text.lower() in name.lower():
                where = {"tenantId": "north", "clusterId": card.cluster, "hostId": card.host, "links": {}}
                found.setdefault((kind, name), {"kind": kind, "name": name} | where)
    matches = list(found.values())[:12]
    return {"matches": matches, "total": len(found), "nextCursor": None}


def debug() -> dict[str, Any]:
    return {
        "sessions": [],
        "total": 0,
        "nextCursor": None,
        "budgetValuesPerSecond": 20_000,
        "freeValuesPerSecond": 20_000,
    }


def administration(name: str, iso: Iso, now_ms: int) -> dict[str, Any]:
    made = iso(now_ms - 86_400_000)
    token = {
        "tokenId": "t1",
        "subject": "token:t1",
        "role": "viewer",
        "tenantId": "north",
        "name": "dashboards",
        "clusterId": "",
        "region": "",
        "collectorPattern": "",
        "created": made,
        "expires": None,
        "revoked": None,
    }
    lists: dict[str, list[dict[str, Any]]] = {
        "tokens": [token],
        "grants": [],
        "tenants": [{"tenantId": "north", "name": "North", "created": made}],
        "entries": [],
    }
    return {name: lists[name], "total": len(lists[name]), "nextCursor": None}


ASKED_RANGE = {
    "from": "2026-11-29T10:00:00.000Z",
    "to": "2026-11-29T11:00:00.000Z",
    "words": "last hour",
    "zone": "UTC",
    "assumed": True,
}


def answer(question: str) -> dict[str, Any]:
    """Return an answer in words, or the question which cluster is meant."""
    unclear = "that cluster" in question
    table = {
        "name": "result",
        "columns": [
            {"name": "cluster", "words": "cluster", "unit": "", "derived": False},
            {"name": "mean", "words": "mean utilisation", "unit": "%", "derived": False},
        ],
        "keys": ["cluster"],
        "rows": [["cedar", 71.4], ["iris", 62.0], ["lotus", 81.5]],
        "truncated": False,
    }
    sql = "SELECT cluster, avg(gpu_utilization_ratio) AS mean FROM gpu_30s GROUP BY cluster"
    return {
        "questionId": "q1",
        "treatment": "clarify" if unclear else "answer",
        "text": "Several clusters fit." if unclear else "cedar had 71.4 %, lotus 81.5 %.",
        "caveats": [] if unclear else ["Complete through 10:43:52."],
        "suggestions": ["Mean utilisation of cedar in the last hour", "Mean utilisation of iris in the last hour"],
        "interpretation": {
            "kind": "figures",
            "metrics": ["gpu_utilization_ratio"],
            "aggregation": ["mean"],
            "dimensions": ["cluster"],
            "filter": {},
            "timeRange": ASKED_RANGE,
            "ranges": [ASKED_RANGE],
            "view": "gpu_30s",
            "granularity": None,
        },
        "chart": "bar",
        "tables": [] if unclear else [table],
        "sql": [] if unclear else [{"name": "result", "view": "gpu_30s", "sql": sql}],
        "rule": "",
        "model": "",
        "freeSql": False,
        "rounds": 0,
        "dropped": 0,
    }
