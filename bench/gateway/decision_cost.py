"""CPU time of a gateway's decision: from a fresh status of one engine to the policy's answer, or to what prefixes say.

    python -m bench.gateway.decision_cost [--engines 8 64 512] [--decisions 2000] [--policies P ...]
    python -m bench.gateway.decision_cost prefixes [--engines 8 64 512] [--decisions 2000]

Engines are made up, under a load that leaves policies something to choose; half of the engines have no memory for
another request. ``prefixes``: who has the prompt's beginning, and who can bring it. Conversations come again and
again, each a little longer, to engines that are two to a host.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random

from bench.harness.arguments import add_names, script_parser
from bench.harness.tables import print_table
from bench.simulated import percentile
from engines.costs.named_profiles import load_profile
from engines.scheduling.demand import MOST_PEAKS
from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.status import MOST_FORESEEN, Demand, EngineStatus, ForeseenSlack, PendingPrefill, ServiceStatus
from router.policies.registry import make_policy, policies
from router.view.engine_view import RequestView
from router.view.known_prefixes import KnownPrefixes
from router.view.monitor import Monitor

SERVICE = "chat"
FOREVER_S = 1e9
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
    service = ServiceStatus(
        SERVICE, NUM_BLOCKS, free, 16, COST.prefill, COST.decode, demand=asked, num_decoding=num_running * decodes
    )
    return EngineStatus(
        seq=seq,
        state=ProcessState.READY,
        role=role,
        host="local",
        pid=1,
        services=[service],
        num_running=num_running,
        num_waiting=max(0, len(prefills) - 1),
        num_tokens=1200 * num_running,
        prefill_remaining_s=left_s / 2,
        prefill_waiting_s=left_s / 2,
        decode_step_s=0.03 if decodes else 0.0,
        min_slack_s=random.uniform(0.05, 3.0) if decodes else None,
        min_tpot_slo_s=0.1 if decodes else None,
        prefills=prefills,
        foreseen=foreseen(random) if decodes else [],
    )


def demand(num_requests: int, random: Random) -> Demand:
    """As full as a status tells. Half of the engines have too much for another request at some step."""
    highest = random.uniform(0.9, 1.1) * 16 * NUM_BLOCKS
    peaks = tuple((40 * (n + 1), int(highest * (1 - n / MOST_PEAKS))) for n in range(MOST_PEAKS))
    return Demand(num_requests, 800 * num_requests, 400 * num_requests, 0.1, peaks)


def foreseen(random: Random) -> list[ForeseenSlack]:
    """As full as a status tells. On a sixth of the engines some decode has less to spare than most prompts take."""
    least_s = random.uniform(0.0, 3.0)
    return [ForeseenSlack(least_s * (n + 1), 400 // (n + 1)) for n in range(MOST_FORESEEN)]


# --- prefixes ---------------------------------------------------------------------------------------------------------

TIERS: Mapping[str, float] = {"tier_tokens": 16 * NUM_BLOCKS, "tier_token_s": 2e-6}
PULLS: Mapping[str, float] = {"pull_s": 0.002, "pull_token_s": 1e-5}
SETTINGS: Mapping[str, Mapping[str, float]] = {"off": {}, "tiers": TIERS, "peers": PULLS, "both": {**TIERS, **PULLS}}
NUM_PREFIXES = 8  # of a prompt of 2,560 to 3,071 tokens
NUM_CONVERSATIONS = 500
PREFIX_WARM_UP = 200  # look-ups


def lookups(costs: Mapping[str, float], num_engines: int, num_lookups: int) -> Iterator[float]:
    """Time look-ups, each of which follows a fresh status, and is followed by a dispatch to one of three engines."""
    random, monitor = Random(0), Monitor(1e9)
    prefixes = KnownPrefixes(monitor)
    for number in range(num_lookups + PREFIX_WARM_UP + num_engines):
        engine = number % num_engines
        monitor.observe(Sender(f"engine-{engine:03}", 1), fresh_status(number, f"host-{engine // 2}", costs), 0.0)
        if number < num_engines:
            continue
        conversation = random.randrange(NUM_CONVERSATIONS)
        names = tuple(1000 * conversation + step for step in range(1 + number * NUM_PREFIXES // (num_lookups + 600)))
        start = time.thread_time()
        prefixes.warm("chat", names)
        elapsed_s = time.thread_time() - start
        prefixes.sent("chat", names, [f"engine-{(conversation + random.randrange(3)) % num_engines:03}"])
        if number >= num_engines + PREFIX_WARM_UP:
            yield elapsed_s


def fresh_status(seq: int, host: str, costs: Mapping[str, float]) -> EngineStatus:
    service = ServiceStatus("chat", NUM_BLOCKS, NUM_BLOCKS // 2, 16, COST.prefill, COST.decode, **costs)  # type: ignore[arg-type]
    return EngineStatus(seq, ProcessState.READY, Role.MULTIPLEX, host, 1, [service], 0, 0, 0, 0.0, 0.0, 0.0, None)


def main() -> None:
    parser = script_parser("bench.gateway.decision_cost", __doc__)
    parser.add_argument(
        "ask", choices=("policies", "prefixes"), nargs="?", default="policies", help="(default: policies)"
    )
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 64, 512], metavar="N", help="in view")
    parser.add_argument("--decisions", type=int, default=2000, metavar="N", help="of each row (default: 2000)")
    add_names(parser, "--policies", policies())
    options = parser.parse_args()
    gc.freeze()
    timed: dict[str, dict[str, Callable[[int, int], Iterator[float]]]] = {
        "policies": {name: partial(policy_decisions, name) for name in options.policies},
        "prefixes": {name: partial(lookups, costs) for name, costs in SETTINGS.items()},
    }
    rows = (
        [name, *(cell(decide(number, options.decisions)) for number in options.engines)]
        for name, decide in timed[options.ask].items()
    )
    print_table("p50 / p99 of a decision, microseconds of CPU", (options.ask, *map(str, options.engines)), (), rows)


def cell(times_s: Iterable[float]) -> str:
    ordered = sorted(times_s)
    return " / ".join(f"{1e6 * percentile(ordered, percent):.0f}" for percent in (50, 99))


if __name__ == "__main__":
    main()
