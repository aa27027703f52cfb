"""A placement daemon in runs with faults: its mind is the product's, what it finds is drawn at random."""

from dataclasses import replace
from random import Random

from mesh.wire.control import Role
from router.placement.change.obstacles import Obstacles
from router.placement.change.replacement import Proposal, Verdict
from router.placement.search.plan import Plan, has_all_phases
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score
from router.placement.search.span import regrouped
from simulation.placement.daemon import SearchResult

MOST_PLANS = 6  # then it wants no other: what is under way is to come to an end
SEARCH_S = 0.1
NOTHING = Score({})


class DrawnPlans:
    """A search that finds any plan that serves all services, and holds it for worth the change. Where memory for
    weights is limited, one that can be had.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(f"{seed}/plans")

    def __call__(self, question: Question) -> SearchResult:
        present, wanted = question.present, question.present
        if question.number <= MOST_PLANS:
            wanted = self._draw(self._regrouped(question), sorted(question.catalogue.services), question.obstacles)
        verdict = Verdict.KEEP if wanted is present else Verdict.REPLACE
        proposal = Proposal(wanted, verdict, NOTHING, NOTHING, 0)
        return SearchResult(Answer(proposal, {}), SEARCH_S)

    def _regrouped(self, question: Question) -> Plan:
        """The present plan, in half of all cases with devices used in another way."""
        present, spans = question.present, question.cluster.spans
        if not spans or self._random.random() < 0.5:
            return present
        span = self._random.choice(spans)
        old, new = next(way for way in span.ways() if way[0][0].id in present.engines)
        held = [name for group in present.groups if group.id in {one.id for one in old} for name in group.services]
        return regrouped(present, old, [group.holding(held) for group in new])

    def _draw(self, present: Plan, services: list[str], obstacles: Obstacles) -> Plan:
        random = self._random
        groups = []
        for group in present.groups:
            held = [name for name in services if random.random() < 0.6]
            role = random.choice([*Role, Role.MULTIPLEX])
            groups.append(replace(group.holding(held), role=obstacles.roles.get(group.id, role)))
        plan = replace(present, groups=tuple(groups))
        can_be_had = not obstacles.limits or obstacles.against(present, plan) is None
        return plan if has_all_phases(plan, services) and can_be_had else present
