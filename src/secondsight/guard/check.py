"""Let a statement of an untrusted author through, or refuse it.

`guard` does all of it. `Plans` keeps what was found of statements, so that the same statement of the same caller costs
next to nothing the next time; what depends on the clock is computed anew each time.
"""

import threading
from collections import OrderedDict

from secondsight.access.scope import Scope
from secondsight.guard.limits import Limits
from secondsight.guard.plan import Guarded, Plan, make_plan
from secondsight.guard.registry import Registry

_KEPT = 512


def guard(text: str, scope: Scope, registry: Registry, now_ms: int, limits: Limits) -> Guarded:
    """Return the statement that may run instead of `text`.

    Args:
        text: As sent.
        scope: What the caller may see, from the identity of the request.
        registry: Views and metrics that may be named.
        now_ms: The time that `now()` stands for, epoch milliseconds.
        limits: How much may be asked for.

    Raises:
        Refused: With a code of `refusal.MESSAGES`; nothing of the text may reach the engine.
    """
    return make_plan(text, scope, registry, now_ms, limits).at(now_ms, registry, limits)


class Plans:
    """Plans of the statements asked last. Safe to call from several threads.

    Args:
        kept: How many plans are kept.
    """

    def __init__(self, registry: Registry, limits: Limits, kept: int = _KEPT) -> None:
        self._registry = registry
        self._limits = limits
        self._kept = kept
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._lock = threading.Lock()

    def guard(self, text: str, scope: Scope, now_ms: int) -> Guarded:
        """Return the statement that may run instead of `text`, as `guard` does.

        Raises:
            Refused: With a code of `refusal.MESSAGES`.
        """
        key = (text, self._registry.version, *_box(scope))
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
        if plan is None:
            plan = make_plan(text, scope, self._registry, now_ms, self._limits)
            with self._lock:
                self._plans[key] = plan
                while len(self._plans) > self._kept:
                    self._plans.popitem(last=False)
        return plan.at(now_ms, self._registry, self._limits)


def _box(scope: Scope) -> tuple[object, ...]:
    """Return everything of a scope that decides what may be read; who it is for does not."""
    return tuple(
        (box.tenant_ids, box.clusters, box.teams, box.jobs, box.model_ids, box.denied_metrics) for box in scope.boxes
    )
