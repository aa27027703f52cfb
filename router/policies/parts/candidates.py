"""Finds who may serve a request and who of them is least loaded, and makes the dispatch that follows."""

from collections.abc import Callable, Iterable, Mapping

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.policy import Dispatch, Reject, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


def find_candidates(request: RequestView, view: ClusterView) -> Candidates | Wait | Reject:
    """`Wait` if no engine serves the request now, `Reject` if none of those that do has a large enough KV pool."""
    # One token more: the KV of the last token sampled is written when the next one is computed.
    found = view.candidates(request.service, request.num_tokens + 1)
    if found is not None:
        return found
    serving = view.serving(request.service)
    if not serving:
        return Wait(view.why_unserved(request.service))
    largest = max(engine.services[request.service].num_slots for engine in serving)
    return Reject(f"the request has {request.num_tokens} tokens; the largest KV pool holds {largest}")


def load(engine: EngineView) -> tuple[int, str]:
    """Tokens in flight (INFaaS); the id decides among equals."""
    return engine.num_tokens, engine.id


def least_loaded(engines: Iterable[EngineView], suits: Callable[[EngineView], bool]) -> EngineView | None:
    """Return the least loaded by `load` of those that suit: only who is less loaded than all before it is looked at.
    None if none does.
    """
    best: EngineView | None = None
    for engine in engines:
        # `load`, spelt out: it is asked for every engine in every decision
        if best is not None and (
            engine.num_tokens > best.num_tokens or (engine.num_tokens == best.num_tokens and engine.id > best.id)
        ):
            continue
        if suits(engine):
            best = engine
    return best


def route(
    request: RequestView,
    rule: str,
    prefill_engine: EngineView,
    decode_engine: EngineView,
    now: float,
    *,
    mode: PrefillMode = PrefillMode.CHUNKED,
    order: PrefillOrder = PrefillOrder.URGENCY,
    multiplex: bool = False,
    stays: bool = False,
    predicted_ttft_s: float | None = None,
    numbers: Mapping[str, float] | None = None,
) -> Dispatch:
    """The dispatch to these engines, with the numbers that explain it. By default, TTFT is backlog and prefill."""
    num_cached = request.cached.get(prefill_engine.id, 0)
    prefill_s = prefill_engine.prefill_s(request.service, request.num_tokens, num_cached)
    backlog_s = prefill_engine.wait_s(request.service, now)
    explaining: dict[str, float] = {
        "prefill_s": prefill_s,
        "backlog_s": backlog_s,
        "cached_tokens": num_cached,
        "prefill_tokens_in_flight": prefill_engine.num_tokens,
        "decode_tokens_in_flight": decode_engine.num_tokens,
        "decode_watermark": decode_engine.services[request.service].watermark,
    }
    if prefill_engine.id in request.loadable:
        explaining["loadable_tokens"] = request.loadable[prefill_engine.id]  # that KV tiers have for it
    if numbers:
        explaining |= numbers
    return Dispatch(
        prefill_engine=prefill_engine.id,
        decode_engine=decode_engine.id,
        rule=rule,
        prefill_s=prefill_s,
        predicted_ttft_s=backlog_s + prefill_s if predicted_ttft_s is None else predicted_ttft_s,
        multiplex=multiplex,
        stays=stays,
        prefill=mode,
        order=order,
        numbers=explaining,
    )
