"""Turn what a question names into the form that is answered: the planner that needs no model.

The rules stand in order; the first that fits decides. What a question leaves open is filled by what is usual and named
in the answer, or asked back where nothing is usual. No rule invents a metric.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from secondsight.ask.counts import (
    plan_allocated,
    plan_completeness,
    plan_ecc_trend,
    plan_inventory,
    plan_listed,
    plan_mean_of_percentiles,
    plan_recent_events,
    plan_summary,
    plan_vague_words,
    plan_waste,
)
from secondsight.ask.cut import plan_figures
from secondsight.ask.defaults import choose
from secondsight.ask.jobs import (
    plan_gpu_by_index,
    plan_idle,
    plan_left_out,
    plan_lifetime,
    plan_quiet,
    plan_replacement,
    plan_slow_job,
    plan_stragglers,
    plan_why,
)
from secondsight.ask.periods import (
    plan_before_after,
    plan_change,
    plan_correlation,
    plan_extreme,
    plan_forecast,
    plan_periods,
)
from secondsight.ask.question import (
    Question,
    Treatment,
)
from secondsight.ask.reading import Reading
from secondsight.ask.rules import screen
from secondsight.ask.unsaid import unsaid
from secondsight.ask.views import Views
from secondsight.ask.vocabulary import Vocabulary
from secondsight.ask.work import Work, missing


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans questions of callers over one set of views; safe to share between threads."""

    views: Views
    vocabulary: Vocabulary

    def plan(self, reading: Reading, now_ms: int) -> Question:
        """Return the question that a reading means, or what is said instead."""
        verdict = screen(reading, self.views)
        if verdict is not None:
            return replace(verdict, context_used=reading.context_used)
        work = Work(reading, self.views, self.vocabulary, now_ms)
        for rule in _RULES:
            question = rule(work)
            if question is not None:
                break
        else:
            question = missing(work)
        if question.treatment is Treatment.ANSWER:
            question = unsaid(reading, question) or question
        if question.treatment is not Treatment.ANSWER:
            return replace(question, context_used=reading.context_used)
        return replace(choose(question, self.views, now_ms), context_used=reading.context_used)


_RULES: tuple[Callable[[Work], Question | None], ...] = (
    plan_gpu_by_index,
    plan_left_out,
    plan_ecc_trend,
    plan_slow_job,
    plan_stragglers,
    plan_replacement,
    plan_quiet,
    plan_why,
    plan_summary,
    plan_recent_events,
    plan_completeness,
    plan_waste,
    plan_idle,
    plan_mean_of_percentiles,
    plan_forecast,
    plan_correlation,
    plan_before_after,
    plan_periods,
    plan_lifetime,
    plan_change,
    plan_allocated,
    plan_extreme,
    plan_listed,
    plan_inventory,
    plan_vague_words,
    plan_figures,
)
