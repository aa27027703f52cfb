"""CPU time of what a gateway asks of its prefixes for a decision: who has the prompt's beginning, and who can bring it.

    python -m bench.gateway.prefix_cost [--engines 8 64 512] [--lookups 2000]

Conversations come again and again, each a little longer, to engines that are made up: two to a host. Before each
look-up one of them tells a fresh status.
"""

import gc
import time
from collections.abc import Iterator, Mapping
from random import Random

from bench.gateway.decision_cost import COST, NUM_BLOCKS, cell
from bench.harness.arguments import script_parser
from bench.harness.tables import print_table
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.status import EngineStatus, ServiceStatus
from router.view.known_prefixes import KnownPrefixes
from router.view.monitor import Monitor

TIERS: Mapping[str, float] = {"tier_tokens": 16 * NUM_BLOCKS, "tier_token_s": 2e-6}
PULLS: Mapping[str, float] = {"pull_s": 0.002, "pull_token_s": 1e-5}
SETTINGS: Mapping[str, Mapping[str, float]] = {"off": {}, "tiers": TIERS, "peers": PULLS, "both": {**TIERS, **PULLS}}
NUM_PREFIXES = 8  # of a prompt of 2,560 to 3,071 tokens
NUM_CONVERSATIONS = 500
WARM_UP = 200  # look-ups


def lookups(num_engines: int, num_lookups: int, costs: Mapping[str, float]) -> Iterator[float]:
    """Time look-ups, each of which follows a fresh status, and is followed by a dispatch to one of three engines."""
    random, monitor = Random(0), Monitor(1e9)
    prefixes = KnownPrefixes(monitor)
    for number in range(num_lookups + WARM_UP + num_engines):
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
        if number >= num_engines + WARM_UP:
            yield elapsed_s


def fresh_status(seq: int, host: str, costs: Mapping[str, float]) -> EngineStatus:
    service = ServiceStatus("chat", NUM_BLOCKS, NUM_BLOCKS // 2, 16, COST.prefill, COST.decode, **costs)  # type: ignore[arg-type]
    return EngineStatus(seq, ProcessState.READY, Role.MULTIPLEX, host, 1, [service], 0, 0, 0, 0.0, 0.0, 0.0, None)


def main() -> None:
    parser = script_parser("bench.gateway.prefix_cost", __doc__)
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 64, 512], metavar="N", help="in view")
    parser.add_argument("--lookups", type=int, default=2000, metavar="N", help="of each setting (default: 2000)")
    options = parser.parse_args()
    gc.freeze()
    rows = (
        [setting, *(cell(lookups(number, options.lookups, costs)) for number in options.engines)]
        for setting, costs in SETTINGS.items()
    )
    print_table("p50 / p99 of a look-up, microseconds of CPU", ("prefixes", *map(str, options.engines)), (), rows)


if __name__ == "__main__":
    main()
