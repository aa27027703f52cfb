"""Computes how much room an engine has for what it runs: virtual usage and freeness (Llumnix, section 4.4.1).

The virtual usage of a request is what it is counted for. A running request counts for its blocks, and with high
priority for head room, too. The request that waits first counts for its demand, so that an engine with a queue looks
overloaded and gives others away. On an engine that is to be emptied, usage has no bound. Freeness is what is left, for
each running request: about how many more steps all of them can make.
"""

from collections.abc import Collection
from math import inf

from engines.costs.linear import decode_step_s
from engines.engine_request import EngineRequest
from mesh.wire.status import DecodeCost

IDEAL_SLOWDOWN = 1.5  # of a decode step beside others, up to which high priority bears it


def freeness(num_free_tokens: float, num_running: int) -> float:
    """Tokens for each running request; ``num_free_tokens`` is the capacity without all virtual usage.

    What is lacking is not shared out: of two engines that lack as much, the crowded one would look freer.
    """
    return num_free_tokens / max(1, num_running) if num_free_tokens > 0 else num_free_tokens


def in_all(free: float, num_running: int) -> float:
    """Free tokens of an engine of that freeness."""
    return free * max(1, num_running) if free > 0 else free


def growth_tokens(running: Collection[EngineRequest]) -> float:
    """Return how many tokens running requests may be expected to generate, all together, until one of them ends.

    Who looks at a random moment finds requests in the middle of their answers: on average, as much is still to come as
    there is (renewal theory: age and residual life are distributed alike). Of n requests with m tokens left on average,
    one ends about every m / n steps, in which all draw n * m / n.
    """
    return sum([request.num_generated for request in running]) / max(1, len(running))


def with_one_less(free: float, num_running: int, num_tokens: int) -> float:
    """Freeness of an engine once a running request of ``num_tokens`` has left it."""
    return freeness(in_all(free, num_running) + num_tokens, num_running - 1)


def with_one_more(free: float, num_running: int, num_tokens: int, num_coming: int = 0) -> float:
    """Freeness of an engine with a request of ``num_tokens`` beyond its ``num_running``.

    ``num_coming`` more are on their way: ``free`` counts their blocks already, but not them.
    """
    return freeness(in_all(free, num_running) - num_tokens, num_running + num_coming + 1)


def headroom_tokens(
    cost: DecodeCost, capacity_tokens: int, running: Collection[EngineRequest], most_running: int, slowdown: float
) -> int:
    """Return what is to be kept free on an engine for its high-priority requests; 0 if it runs none.

    As much as brings the load down to where a step takes ``slowdown`` times as long as that of one such request alone.
    """
    favoured = [request for request in running if request.spec.priority > 0]
    if not favoured:
        return 0
    mean_tokens = sum([len(request.tokens) for request in running]) / len(running)
    longest_s = slowdown * decode_step_s(cost, 1, round(mean_tokens))
    num_bearable = 1
    while (
        num_bearable < most_running
        and decode_step_s(cost, num_bearable + 1, round((num_bearable + 1) * mean_tokens)) <= longest_s
    ):
        num_bearable += 1
    return max(0, capacity_tokens - round(num_bearable * mean_tokens))


def free_tokens(capacity_tokens: int, held_tokens: int, queued_tokens: int, *, is_emptied: bool) -> float:
    """Capacity without the virtual usage of held blocks, of the queue's head, of a drain."""
    return -inf if is_emptied else float(capacity_tokens - held_tokens - queued_tokens)
