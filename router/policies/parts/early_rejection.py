"""Early rejection (Mooncake): what is predicted to break a promise is refused at once, where nobody can keep it.

Where decodes are elsewhere, nothing that they were promised bounds what a prefill engine is sent. So a request whose
promises would be kept waits in the gateway while that engine has enough to compute.

A dispatch keeps the promises if the request's first token comes in time and engines have a place for it. Its tokens
and those of all that decode beside it must come in time, too, until their answers end
(`router.policies.parts.promises`). Predictions are taken at their word. An engine that has nothing else to do is not
asked about tokens: to refuse what comes there would help nobody.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from engines.costs.linear import prefill_s
from mesh.wire.control import PrefillMode
from router.policies.capabilities import UsesLengths
from router.policies.parts.outlook import has_enough
from router.policies.parts.promises import Errors, joined_step_s, own_spare_s, spare_s
from router.policies.policy import Dispatch, GiveUp, Wait
from router.view.engine_view import EngineView, RequestView

MOST_TRIED: Final = 8  # ways of one decision that are looked at, those that the policy likes best
LENGTHS: Final = UsesLengths(least=0.5)  # answers are counted on to be as long as half of them are at least
AT_THEIR_WORD: Final = Errors(prefill=1.0, step=1.0)


class Way(NamedTuple):
    """A dispatch and the engines that it names."""

    dispatch: Dispatch
    prefill_engine: EngineView
    decode_engine: EngineView


def first_kept(request: RequestView, ways: Iterable[Way], now: float) -> Dispatch | GiveUp | Wait:
    """Return the first of these ways, one at least, that keeps all promises; if none does, why the first does not."""
    reasons: list[str] = []
    for way in ways:
        reason = broken_promise(request, way, now)
        if reason is None:
            engine, wait_s = way.prefill_engine, way.prefill_engine.wait_s(request.service, now)
            hands_over = engine is not way.decode_engine
            has_to_wait = hands_over and has_enough(engine.num_prefills, wait_s)
            return Wait("prefill engines have enough to compute, and it is in time") if has_to_wait else way.dispatch
        reasons.append(reason)
    return GiveUp(reasons[0])


def broken_promise(request: RequestView, way: Way, now: float) -> str | None:
    """Say which promise would be broken; None: none."""
    engine, pool = way.decode_engine, way.decode_engine.services[request.service]
    late_s = now + way.dispatch.predicted_ttft_s + _beside_s(request, way) - request.deadline
    if late_s > 0:
        return f"its first token would come {late_s:.2f} s too late"
    if not (way.prefill_engine.has_place(request.service) and engine.has_place(request.service)):
        return f"it would wait for one of {pool.num_requests} requests to end"
    if not engine.num_requests:
        return None
    held_up_s = engine.known_prefills_s + (way.dispatch.prefill_s if engine is way.prefill_engine else 0.0)
    step_s = joined_step_s(engine, request)
    if min(own_spare_s(request, 0.0, step_s, AT_THEIR_WORD), spare_s(engine, held_up_s, step_s, AT_THEIR_WORD)) < 0:
        return "tokens would come too late"
    return None


def _beside_s(request: RequestView, way: Way) -> float:
    """Seconds of decode steps that come before its first token: one, or one beside each chunk of all prompts."""
    engine, step_s = way.prefill_engine, way.prefill_engine.decode_step_s
    cost = engine.services[request.service].prefill_cost
    if way.dispatch.prefill is not PrefillMode.CHUNKED or not cost.chunk_tokens:
        return step_s
    return step_s * max(1.0, way.dispatch.predicted_ttft_s / prefill_s(cost, cost.chunk_tokens))
