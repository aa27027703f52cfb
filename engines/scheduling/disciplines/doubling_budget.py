"""Doubling budget (SeaLLM, section 4.2 and algorithm 2).

Requests go by ``O_r = Q_r * Lhat_s``, smaller first: what is left of the request's budget of execution time, times the
mean execution time of its service. A budget begins as ``Q = Lhat_s + Std_s`` and pays for the steps that the request
takes part in. When it is used up, and the request is not done, the next one is twice as large as the one before. The
request then ranks behind those that keep to their service's profile: it is long, and it may be much longer.

Where ``Q_r`` is the time that is left, ``1 / O_r`` is the c-mu index of a cost of ``1 / Lhat_s`` a second. That order
makes the sum of ``L_r / Lhat_s`` least (equations 7 and 9 to 13; docs/concepts/sharing.md says when that holds).

A batch serves all who are in it at once, at little more than the cost of one. So services are compared by ``O_r`` of
their first request, divided by the number of requests that an iteration of theirs serves. The c-mu index of a batch
is the sum of those of its requests. With batches of one request it is the paper's rule.

Budgets are continuous: what a step uses beyond the end of one is paid by the next. So a request has used up ``k`` of
them when it has run for ``2^k - 1`` times the first, however its steps were cut.
"""

from engines.scheduling.disciplines.entrant import Entrant
from engines.scheduling.disciplines.profile import ProfileOf


class DoublingBudget:
    """A request's level is how many budgets it has used up."""

    def __init__(self, profiles: ProfileOf) -> None:
        self._profiles = profiles

    def came(self, entrant: Entrant) -> None:
        """Let a request begin with the whole of its first budget."""

    def ran(self, entrant: Entrant) -> None:
        used_s = entrant.used_s
        entrant.place = -used_s
        budget_s = self._profiles[entrant.service].budget_s
        while used_s >= _num_budgets(entrant.level) * budget_s:
            entrant.level += 1

    def steady_s(self, entrant: Entrant) -> float:
        return self._left_s(entrant)

    def newcomer(self, service: str, batch: int, now: float) -> tuple[float, ...]:
        profile = self._profiles[service]
        return (profile.budget_s * profile.mean_s / batch,)

    def value(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        return (max(0.0, self._left_s(entrant)) * self._profiles[entrant.service].mean_s / batch,)

    def _left_s(self, entrant: Entrant) -> float:
        """Of the budget of its level."""
        return _num_budgets(entrant.level) * self._profiles[entrant.service].budget_s - entrant.used_s


def _num_budgets(level: int) -> int:
    """All up to that of the level, in units of the first."""
    return (2 << level) - 1
