"""What a gateway costs beside the Rust routers of others: CPU of their processes for each streamed token and request.

    python -m bench.peers.routers [--routers FOLDER] [--streams N] [--step-ms MS] [--json FILE]

``FOLDER`` holds the commands ``vllm-router`` and ``smg`` (PyPI, both of the same names). They pass through what a mock
backend says, as our gateway does before servers; before its own engines, which are scripted here, it tokenises, routes,
detokenises and encodes. All take turns under the same load: `mesh bench`'s clients, chats of 64 words. Engines and
backend say a token each ``--step-ms``. CPU a token is that of long answers, a request's own cost spread over them.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench.gateway.servers import forwarding_gateway, mock_backend, one_gateway, others_router
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import cpu_s
from bench.harness.tables import print_table
from bench.live.sending import send, word_chats
from bench.live.servers import MODEL, Server
from bench.load.generator.wire import Pace, Shape
from bench.load.results.outcome import Outcome
from mesh.errors import UserError

ANSWER_S = 60.0
WORDS = 64
OURS, DIRECT = "MeshServe gateway", "mock backend alone"
FORWARDING = "MeshServe gateway, forwarding"
COLUMNS = ("CPU us / token", "CPU us / request of 1 token", "requests/s of 1 token", "TTFT alone, ms")


def sent(server: Server, num_requests: int, num_slots: int, num_tokens: int, seed: int) -> list[Outcome]:
    """Raise `UserError` if a request fails."""
    shapes, pace = [Shape(MODEL, WORDS, num_tokens)] * num_requests, Pace(num_slots=num_slots)
    outcomes = send(server.address, word_chats(seed), shapes, pace, answer_s=ANSWER_S)
    if lost := [outcome for outcome in outcomes if not outcome.is_finished]:
        raise UserError(f"{server.name}: {len(lost)} requests failed, the first one: {lost[0].reason}")
    return outcomes


def measure(server: Server, num_streams: int, num_tokens: int, seed: int) -> tuple[float, ...]:
    """Return the figures of one round, in the order of `COLUMNS`."""
    began_s = cpu_s([server.process.pid])
    long = sent(server, 4 * num_streams, num_streams, num_tokens, seed)
    token_s = (cpu_s([server.process.pid]) - began_s) / sum(one.output_tokens for one in long)
    began_s = cpu_s([server.process.pid])
    short = sent(server, 20 * num_streams, num_streams, 1, seed)
    request_s = (cpu_s([server.process.pid]) - began_s) / len(short)
    ttft_s = median(one.ttft_s for one in sent(server, 30, 1, 1, seed) if one.ttft_s is not None)
    return 1e6 * token_s, 1e6 * request_s, len(short) / max(one.ended_s for one in short), 1e3 * ttft_s


@contextmanager
def contestants(routers: Path | None, model: str, step_ms: float) -> Iterator[list[Server]]:
    """The mock backend, the routers before it, and our gateway, all ready."""
    with ExitStack() as stack:
        backend = stack.enter_context(mock_backend(DIRECT, "--first-ms", str(step_ms), "--gap-ms", str(step_ms)))
        urls, rivals = [backend.url], list[Server]()
        if routers is not None:
            started = (others_router(name, routers, urls, "round_robin") for name in ("vllm-router", "smg"))
            rivals = [stack.enter_context(one) for one in started]
        forwarding = stack.enter_context(forwarding_gateway(FORWARDING, urls))
        yield [backend, *rivals, forwarding, stack.enter_context(one_gateway(OURS, model, step_ms))]


def compare(options: argparse.Namespace) -> dict[str, list[float]]:
    """Medians of the rounds, by server."""
    with contestants(options.routers, options.model, options.step_ms) as servers:
        rounds = {server.name: list[tuple[float, ...]]() for server in servers}
        for turn in range(options.rounds):
            for server in servers:
                rounds[server.name].append(measure(server, options.streams, options.tokens, seed=turn))
            print(f"round {turn + 1} of {options.rounds} done", file=sys.stderr)
    return {name: [median(values) for values in zip(*found, strict=True)] for name, found in rounds.items()}


def main() -> None:
    parser = script_parser("bench.peers.routers", __doc__, model=True, rounds=3, json=True)
    parser.add_argument("--routers", type=Path, metavar="FOLDER", help="holds vllm-router and smg")
    parser.add_argument("--streams", type=int, default=32, metavar="N", help="concurrent (default: 32)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of an answer (default: 64)")
    parser.add_argument("--step-ms", type=float, default=5.0, metavar="MS", help="between tokens (default: 5)")
    options = parser.parse_args()
    with errors_in_a_line():
        medians = compare(options)
    rows = ([name, *(f"{value:.1f}" for value in values)] for name, values in medians.items())
    print_table("medians", ("",), COLUMNS, rows)
    write_json(options.json, {name: dict(zip(COLUMNS, values, strict=True)) for name, values in medians.items()})


if __name__ == "__main__":
    main()
