"""Builders of what engines say, for tests: an engine prefills 1000 tokens a second and has 100 blocks of 16 tokens."""

from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.requests import Delta, Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from router.effects import Effect
from router.generation import RouterError
from router.history.lengths import LengthPredictor
from router.history.timeline import RequestFacts, RequestTimeline
from router.requests.in_flight_request import InFlightRequest
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, RequestView, engine_view

SERVICE = "chat"
DECODE_COST = DecodeCost(0.01, 0.0)
P0, P1 = "prefill-0", "prefill-1"
D0, D1 = "decode-0", "decode-1"
M0, M1 = "multiplex-0", "multiplex-1"
ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "multiplex": Role.MULTIPLEX}


def make_status(
    engine,
    seq=1,
    *,
    state=ProcessState.READY,
    services=(SERVICE,),
    num_blocks=100,
    num_free_blocks=None,
    demand=None,
    decode_cost=DECODE_COST,
    held_by_priority=(),
    line_s=None,
    decoding=None,
    **numbers,
) -> EngineStatus:
    free = num_blocks if num_free_blocks is None else num_free_blocks
    fields = {
        "num_running": 0,
        "num_waiting": 0,
        "num_tokens": 0,
        "prefill_remaining_s": 0.0,
        "prefill_waiting_s": 0.0,
        "decode_step_s": 0.01,
        "min_slack_s": None,
    }
    fields |= numbers
    costs, held = (PrefillCost(0.0, 0.001), decode_cost), list(held_by_priority)
    counts = decoding or dict.fromkeys(services, 1 if fields["decode_step_s"] else 0)
    return EngineStatus(
        seq=seq,
        state=state,
        role=ROLES[engine.partition("-")[0]],
        host="local",
        pid=1,
        services=[
            ServiceStatus(
                name,
                num_blocks,
                free,
                16,
                *costs,
                demand=demand,
                held_by_priority=held,
                line_s=line_s,
                num_decoding=counts.get(name, 0),
            )
            for name in services
        ],
        **fields,
    )


def make_engine(id_, *, reservations=(), age_s=0.0, **numbers) -> EngineView:
    return engine_view(id_, make_status(id_, **numbers), -age_s, reservations)


def make_view(*engines: EngineView) -> ClusterView:
    return ClusterView({engine.id: engine for engine in engines})


def make_request(num_tokens=100, *, deadline=1.0, service=SERVICE, id_="r", priority=0, cached=None) -> RequestView:
    return RequestView(id_, service, num_tokens, 0.0, deadline, 0.1, priority, cached or {})


def make_spec(id_="r", num_tokens=100, *, slo_ttft_s=1.0, max_tokens=16, **fields) -> RequestSpec:
    sampling = Sampling(max_tokens=max_tokens, seed=7)
    return RequestSpec(id_, "gateway", SERVICE, [1] * num_tokens, sampling, slo_ttft_s, 0.1, **fields)


def make_delta(offset, *tokens, id_="r", epoch=(0, 0), finish=None, **fields) -> Delta:
    return Delta(id_, Epoch(*epoch), offset, list(tokens), finish, **fields)


def sender_of(engine, incarnation=1) -> Sender:
    return Sender(engine, incarnation)


def make_in_flight(spec, number=1, now=0.0, tenant="") -> InFlightRequest:
    timeline = RequestTimeline(RequestFacts.of(spec), now - spec.age_s, number)
    return InFlightRequest.of(spec, timeline, 0.0, LengthPredictor().predict(spec), tenant)


def submit_to(dispatcher, spec, now, tenant="") -> list[Effect]:
    """As a gateway does: it opens a timeline, and ends it if the request is not taken."""
    timeline = dispatcher.timelines.arrived(spec, now)
    try:
        return dispatcher.submit(spec, timeline, now, tenant)
    except RouterError as error:
        dispatcher.timelines.failed(timeline, error, now)
        raise
