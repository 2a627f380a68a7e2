"""Show on `/metrics` what tenants hold, have sent, and were refused."""

from collections.abc import Mapping

from secondsight.gateway.door import Door
from secondsight.selfmetrics import SelfMetrics


def tallies(door: Door, connections: Mapping[str, int], now_seconds: float) -> SelfMetrics:
    """Return what there is to show, as it is now; connections that showed no token yet are of the tenant ""."""
    shown = SelfMetrics()
    pressure = door.pressure
    shown.gauge("gateway_backlog_bytes", pressure.behind.backlog_bytes)
    shown.gauge("gateway_in_flight_bytes", pressure.in_flight.total)
    shown.gauge("gateway_in_flight_requests", pressure.requests.total)
    held: dict[str, Mapping[str, int]] = {
        "gateway_tenant_connections": connections,
        "gateway_tenant_backlog_bytes": pressure.behind.by_tenant(),
        "gateway_tenant_in_flight_bytes": pressure.in_flight.by_tenant(),
        "gateway_tenant_in_flight_requests": pressure.requests.by_tenant(),
    }
    for name, amounts in held.items():
        for tenant_id, amount in amounts.items():
            shown.gauge(name, amount, tenant=tenant_id)
    for tenant_id, reason, number, last_seconds in door.waits():
        shown.count("gateway_tenant_waits_total", number, tenant=tenant_id, reason=reason)
        shown.gauge("gateway_tenant_wait_age_seconds", now_seconds - last_seconds, tenant=tenant_id, reason=reason)
    _show_quotas(door, shown)
    return shown


def _show_quotas(door: Door, shown: SelfMetrics) -> None:
    for tenant_id, allowance in door.quotas.by_tenant():
        shown.count("gateway_tenant_values_total", allowance.sent_values, tenant=tenant_id)
        shown.count("gateway_tenant_bytes_total", allowance.sent_bytes, tenant=tenant_id)
        shown.gauge("gateway_tenant_active_series", allowance.series.series, tenant=tenant_id)
        for code, number in allowance.refused.items():
            shown.count("gateway_tenant_refused_total", number, tenant=tenant_id, code=code)
        limits = {
            "values_per_second": allowance.quota.values_per_second,
            "bytes_per_second": allowance.quota.bytes_per_second,
            "active_series": allowance.quota.active_series,
            "new_series_per_minute": allowance.quota.new_series_per_minute,
        }
        for name, limit in limits.items():
            if limit:
                shown.gauge("gateway_tenant_quota", limit, tenant=tenant_id, quota=name)
