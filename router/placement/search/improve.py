"""Local search, beyond SeaLLM: changes that make plans better, among them those that the greedy search never makes.

It climbs from several plans at a time, one for each way to cut the cluster: joining groups, say, pays only after some
services have moved.
"""

from collections.abc import Callable, Sequence
from random import Random

from mesh.wire.control import Role
from router.placement.observe.requirements import Catalogue
from router.placement.search.cells import engine_of
from router.placement.search.greedy import Scored, best_first
from router.placement.search.neighbours import Changes
from router.placement.search.plan import Plan
from router.placement.search.score import Evaluate
from router.placement.search.span import DeviceSpan

BATCH = 8  # neighbours that are evaluated at a time
BEAM = 6  # ways to cut the cluster that are pursued
KEPT = 6  # plans that are told in the end
MOST_TRIES = 64  # draws in search of a neighbour that fits and is new
IN_VAIN = 6  # batches, and twice round the cuts, without any: there is none

Cut = tuple[tuple[str, int], ...]
Shape = tuple[tuple[str, int, tuple[str, ...], Role, int], ...]


def improve(
    starts: Sequence[Scored],
    catalogue: Catalogue,
    evaluate: Evaluate,
    random: Random,
    is_over: Callable[[int], bool],
    is_enough: Callable[[Scored], bool],
    *,
    is_open: Callable[[Plan], bool] | None = None,
    may_cut: bool = True,
    spans: Sequence[DeviceSpan] = (),
    batch: int = BATCH,
) -> list[Scored]:
    """The best plans found from ``starts`` on, best first: where scores are rough, the first need not be the best.

    ``is_over`` is asked before each batch, with the number of those before. It ends early, too, when the best plan
    ``is_enough``, and when there is no other plan. Only plans that are ``is_open`` count. With ``may_cut``, groups are
    joined and split; else engines by ``spans``.

    Every other batch is of neighbours of the best plan, the others are of those of the other cuts in turn.
    """
    best, beam = best_first(starts)[:KEPT], _beam(starts)
    seen = {_shape(one.plan) for one in starts}
    num_batches = num_in_vain = 0
    while not (is_over(num_batches) or is_enough(best[0]) or num_in_vain >= max(IN_VAIN, 2 * len(beam))):
        index = 0 if num_batches % 2 == 0 else num_batches // 2 % len(beam)
        num_batches += 1
        num_in_vain += 1
        one = beam[index]
        plans = _neighbours(Changes(one.plan, one.score, catalogue, random, may_cut, spans), seen, is_open, batch)
        if plans:
            num_in_vain = 0
            scored = [Scored(*pair) for pair in zip(plans, evaluate(plans), strict=True)]
            best, beam = best_first([*best, *scored])[:KEPT], _beam([*beam, *scored])
    return best


def _beam(scored: Sequence[Scored]) -> list[Scored]:
    """The best plan of each of the best cuts, best first."""
    best: dict[Cut, Scored] = {}
    for one in best_first(scored):
        best.setdefault(tuple(sorted((group.host, group.num_devices) for group in one.plan.groups)), one)
    return list(best.values())[:BEAM]


def _shape(plan: Plan) -> Shape:
    """What tells plans apart: groups of a host that are alike can change places."""
    return tuple(sorted((group.host, *engine_of(group)) for group in plan.groups))


def _neighbours(changes: Changes, seen: set[Shape], is_open: Callable[[Plan], bool] | None, most: int) -> list[Plan]:
    found: list[Plan] = []
    for _ in range(MOST_TRIES):
        if len(found) == most:
            break
        plan = changes.draw()
        if plan is not None and _shape(plan) not in seen and (is_open is None or is_open(plan)):
            seen.add(_shape(plan))
            found.append(plan)
    return found
