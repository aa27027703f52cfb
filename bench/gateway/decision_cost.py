"""CPU time of pure decisions: a policy's, a gateway's with and without stories, and an engine's by its discipline.

    python -m bench.gateway.decision_cost policies [--engines 8 64 512] [--decisions 2000] [--policies P ...]
    python -m bench.gateway.decision_cost stories [--engines 4 64 512] [--decisions 5000]
    python -m bench.gateway.decision_cost disciplines [--decisions 300]

``policies``: from the view that follows a fresh status of one engine to the policy's answer, on made-up engines under a
load that leaves policies something to choose. ``stories``: a request of one token in the dispatcher, from arrival to
end, with what `mesh explain` remembers of it and without. ``disciplines``: a decode step of an engine's core that plans
it and books its result while nothing is computed. One of its two services decodes 100 requests; 64 requests of the
other wait, if its turn does not come.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from rich.table import Table

from bench.engine.one_engine import Model, OneEngine
from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from engines.costs.profiles import load_profile
from engines.scheduling.demand import MOST_PEAKS
from engines.scheduling.scheduler import Limits
from mesh.topology.schema import PolicySpec, Scheduling
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.requests import Accepted, Delta, Epoch, FinishReason, RequestSpec, Sampling, StepTokens
from mesh.wire.status import DecodeCost, Demand, EngineStatus, PendingPrefill, PrefillCost, ServiceStatus
from router.effects import SendToEngine
from router.history.timelines import TimelineReaders, Timelines
from router.policies.registry import make_policy, policies
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.engine_view import RequestView
from router.view.monitor import Monitor
from simulation.loads.trace_request import TraceRequest
from simulation.quiet import quiet_engines

SERVICE = "chat"
FOREVER_S = 1e9


def main() -> None:
    parser = script_parser("bench.gateway.decision_cost", __doc__)
    parser.add_argument("whose", choices=MEASURES)
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 64, 512], metavar="N", help="in view")
    parser.add_argument("--decisions", type=int, default=2000, metavar="N", help="of each kind (default: 2000)")
    parser.add_argument("--policies", nargs="+", choices=sorted(policies()), default=list(policies()), metavar="P")
    options = parser.parse_args()
    gc.freeze()
    measure, kinds, sizes = MEASURES[options.whose]
    kinds, sizes = kinds or options.policies, sizes or options.engines
    make_console().print(cost_table(measure, kinds, sizes, options.decisions))


def cost_table(
    measure: Callable[[str, int, int], Iterator[float]], kinds: Sequence[str], sizes: Sequence[int], num: int
) -> Table:
    """``measure`` yields the seconds of each of ``num`` decisions of a kind with so many engines or requests."""
    table = make_table("p50 / p99 of a decision, microseconds of CPU", ("", *map(str, sizes)))
    for kind in kinds:
        times = [sorted(measure(kind, size, num)) for size in sizes]
        table.add_row(
            kind, *(f"{1e6 * one[len(one) // 2]:.0f} / {1e6 * one[99 * len(one) // 100]:.0f}" for one in times)
        )
    return table


# --- policies ---------------------------------------------------------------------------------------------------------

COST = load_profile("a100-llama2-70b-tp4").cost.in_chunks(2048)
NUM_BLOCKS = 28_000
PREFILL_SHARE = 3 / 8
WARM_UP = 100  # decisions
MOST_PREFILLS = 2  # that a prefill engine tells of


def policy_decisions(policy_name: str, num_engines: int, num_decisions: int) -> Iterator[float]:
    """Time a policy's choice after each fresh status."""
    random = Random(0)
    policy, monitor = make_policy(PolicySpec(policy_name), Random(0)), Monitor(FOREVER_S)
    num_prefill = round(PREFILL_SHARE * num_engines)
    roles = {f"engine-{n:03}": Role.PREFILL if n < num_prefill else Role.MULTIPLEX for n in range(num_engines)}
    engines = list(roles)
    for engine, role in roles.items():
        monitor.observe(Sender(engine, 1), loaded_status(0, role, random), 0.0)
    for number in range(1, num_decisions + WARM_UP + 1):
        engine, now = random.choice(engines), 0.01 * number
        monitor.observe(Sender(engine, 1), loaded_status(number, roles[engine], random), now)
        num_tokens = random.randrange(100, 3000)
        request = RequestView("r", SERVICE, num_tokens, now, now + 2.0, 0.1, answer_tokens=400)
        start = time.thread_time()
        policy.decide(request, monitor.view(), now)
        elapsed_s = time.thread_time() - start
        if number > WARM_UP:
            yield elapsed_s


def loaded_status(seq: int, role: Role, random: Random) -> EngineStatus:
    """The status of an engine under a load that leaves policies something to choose."""
    prefills = [
        PendingPrefill(random.uniform(-0.2, 2.0), random.uniform(0.01, 0.3), 0)
        for _ in range(random.randint(0, MOST_PREFILLS if role is Role.PREFILL else MOST_PREFILLS // 2))
    ]
    num_running = random.randrange(30) if role is not Role.PREFILL else len(prefills)
    left_s = sum(prefill.left_s for prefill in prefills)
    decodes = role is not Role.PREFILL and num_running > 0
    free = random.randrange(NUM_BLOCKS // 2, NUM_BLOCKS)
    asked = demand(num_running, random) if decodes else None
    return EngineStatus(
        seq=seq,
        state=ProcessState.READY,
        role=role,
        host="local",
        pid=1,
        services=[ServiceStatus(SERVICE, NUM_BLOCKS, free, 16, COST.prefill, COST.decode, demand=asked)],
        num_running=num_running,
        num_waiting=max(0, len(prefills) - 1),
        num_tokens=1200 * num_running,
        prefill_remaining_s=left_s / 2,
        prefill_waiting_s=left_s / 2,
        decode_step_s=0.03 if decodes else 0.0,
        min_slack_s=random.uniform(0.05, 3.0) if decodes else None,
        min_tpot_slo_s=0.1 if decodes else None,
        prefills=prefills,
    )


def demand(num_requests: int, random: Random) -> Demand:
    """As full as a status tells. Half of the engines have too much for another request at some step."""
    highest = random.uniform(0.9, 1.1) * 16 * NUM_BLOCKS
    peaks = tuple((40 * (n + 1), int(highest * (1 - n / MOST_PEAKS))) for n in range(MOST_PEAKS))
    return Demand(num_requests, 800 * num_requests, 400 * num_requests, 0.1, peaks)


# --- stories ----------------------------------------------------------------------------------------------------------

IDLE_SERVICE = ServiceStatus(SERVICE, 1000, 1000, 16, PrefillCost(0.0, 0.001), DecodeCost(0.01, 0.0))
LIMITS = DispatchLimits(max_requests=1024, max_waiting=512, reply_s=1.0)
WITHOUT, WITH = "without stories", "with stories"
STORY_WARM_UP = 1000  # requests


def requests_in_dispatcher(kind: str, num_engines: int, num_requests: int) -> Iterator[float]:
    """Time what a gateway does with one request after the other."""
    without = Timelines(TimelineReaders(), kept_requests=0, kept_engines=0)
    timelines = Timelines() if kind == WITH else without
    dispatcher = Dispatcher(make_policy(PolicySpec(), Random(0)), Monitor(FOREVER_S), LIMITS, timelines)
    for index in range(num_engines):
        role = Role.PREFILL if index % 2 else Role.MULTIPLEX
        idle = EngineStatus(index, ProcessState.READY, role, "local", 1, [IDLE_SERVICE], 0, 0, 0, 0.0, 0.0, 0.01, None)
        dispatcher.observe(Sender(f"engine-{index}", 1), idle, 0.0)
    for index in range(STORY_WARM_UP + num_requests):
        now, id_ = index * 0.01, f"r{index}"
        spec = RequestSpec(id_, "gateway", SERVICE, [1] * 100, Sampling(max_tokens=16, seed=7), 1.0, 0.1)
        started = time.thread_time()
        effects = dispatcher.submit(spec, timelines.arrived(spec, now), now)
        engine = next(effect.to for effect in effects if isinstance(effect, SendToEngine))
        dispatcher.receive(engine, Accepted(id_, Epoch(0), index), now)
        dispatcher.receive(engine, StepTokens([Delta(id_, Epoch(0), 0, [1], FinishReason.STOP)]), now)
        elapsed_s = time.thread_time() - started
        if index >= STORY_WARM_UP:
            yield elapsed_s


# --- disciplines ------------------------------------------------------------------------------------------------------

MODELS = {
    name: Model(load_profile(preset).cost, 10**6)
    for name, preset in {"chat": "a100-llama2-7b-tp1", "summary": "a100-llama2-13b-tp1"}.items()
}
NUM_DECODING, NUM_WAITING = 100, 64
PROMPT, ANSWER = 512, 10**5  # tokens
STEP_WARM_UP = 50  # steps, beyond one for each prompt


def engine_steps(scheduling: str, num_decoding: int, num_steps: int) -> Iterator[float]:
    """Time the core's part of each decode step. Disciplines with turns alternate between the services."""
    engine = OneEngine(MODELS, Limits(num_decoding, PROMPT), Scheduling(scheduling))
    now = 0.0
    with quiet_engines():
        for service, num in zip(MODELS, (num_decoding, NUM_WAITING), strict=True):
            for _ in range(num):
                engine.submit(TraceRequest(now, PROMPT, ANSWER, service=service))
        for _ in range(num_decoding + NUM_WAITING + STEP_WARM_UP):
            now = engine.step(now) or now
        gc.collect()
        for _ in range(num_steps):
            began = time.thread_time()
            now = engine.step(now) or now
            yield time.thread_time() - began


# By whose decisions they are: what measures them, their kinds and sizes; without any, as the command says.
MEASURES: dict[str, tuple[Callable[[str, int, int], Iterator[float]], Sequence[str], Sequence[int]]] = {
    "policies": (policy_decisions, (), ()),
    "stories": (requests_in_dispatcher, (WITHOUT, WITH), ()),
    "disciplines": (engine_steps, list(Scheduling), (NUM_DECODING,)),
}


if __name__ == "__main__":
    main()
