"""Which engines may do what for a request: their roles, unless too few are left to go by roles."""

from collections.abc import Iterable
from dataclasses import dataclass

from mesh.messages import Role
from router.policies.policy import Dispatch, Reject, Wait
from router.view import ClusterView, EngineView, RequestView


@dataclass(frozen=True, slots=True)
class Candidates:
    """The living engines that could hold the request, by what they may do for it.

    Any engine can do everything, so serving goes on with whatever is left: decode engines prefill when no other
    engine may, and prefill engines decode when no other is left.
    """

    prefill: tuple[EngineView, ...]  # prefill only, and hand over
    multiplex: tuple[EngineView, ...]  # prefill between decodes, and keep
    decode: tuple[EngineView, ...]  # take over what was prefilled elsewhere

    @property
    def entrances(self) -> tuple[EngineView, ...]:
        """All that may prefill, for whatever follows."""
        return self.prefill + self.multiplex


def find_candidates(request: RequestView, view: ClusterView) -> Candidates | Wait | Reject:
    """`Wait` if no engine serves the request now, `Reject` if none of those that do has a large enough KV pool."""
    serving = view.serving(request.service)
    if not serving:
        return Wait(f"no engine is ready to serve {request.service}")
    # One token more: the KV of the last token drawn is written when the next one is computed.
    fitting = [engine for engine in serving if engine.services[request.service].can_ever_hold(request.num_tokens + 1)]
    if not fitting:
        pools = (engine.services[request.service] for engine in serving)
        largest = max(pool.num_blocks * pool.block_size for pool in pools)
        return Reject(f"the request has {request.num_tokens} tokens; the largest KV pool holds {largest}")
    return _by_role(fitting)


def _by_role(engines: Iterable[EngineView]) -> Candidates:
    by_role: dict[Role, tuple[EngineView, ...]] = dict.fromkeys(Role, ())
    for engine in engines:
        by_role[engine.role] += (engine,)
    prefill, multiplex, decode = by_role[Role.PREFILL], by_role[Role.MULTIPLEX], by_role[Role.DECODE]
    return Candidates(
        prefill=prefill,
        multiplex=multiplex or (() if prefill else decode),
        decode=decode + multiplex or prefill,
    )


def load(engine: EngineView) -> tuple[int, str]:
    """Tokens in flight (INFaaS); the id decides among equals."""
    return engine.num_tokens, engine.id


def least_loaded(engines: Iterable[EngineView]) -> EngineView | None:
    """None if there is none."""
    return min(engines, key=load, default=None)


def decoders_for(entrance: EngineView, candidates: Candidates) -> tuple[EngineView, ...]:
    """Where a request may decode after its prefill on ``entrance``: there itself, if that engine decodes at all."""
    if any(engine.id == entrance.id for engine in candidates.decode):
        return (entrance,)
    return candidates.decode


def route(request: RequestView, rule: str, entrance: EngineView, decoder: EngineView) -> Dispatch:
    """The dispatch to these engines, with the numbers that explain it."""
    prefill_s = entrance.prefill_s(request.service, request.num_tokens)
    return Dispatch(
        prefill_engine=entrance.id,
        decode_engine=decoder.id,
        rule=rule,
        prefill_s=prefill_s,
        predicted_ttft_s=entrance.backlog_s + prefill_s,
        numbers={
            "prefill_s": prefill_s,
            "backlog_s": entrance.backlog_s,
            "prefill_tokens_in_flight": entrance.num_tokens,
            "decode_tokens_in_flight": decoder.num_tokens,
            "decode_watermark": decoder.services[request.service].watermark,
        },
    )
