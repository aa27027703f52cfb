"""What a gateway costs beside the Rust routers of others: CPU of their processes for each streamed token and request.

    python -m bench.peers.routers [--routers FOLDER] [--streams N] [--step-ms MS] [--json FILE]

``FOLDER`` holds the commands ``vllm-router`` and ``smg`` (PyPI, both of the same names). They pass through what a mock
backend says, as our gateway does before servers; before its own engines, which are scripted here, it tokenises, routes,
detokenises and encodes. All take turns under the same load: `mesh bench`'s clients, chats of 64 words. Engines and
backend say a token each ``--step-ms``. CPU a token is that of long answers, a request's own cost spread over them.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench.gateway.servers import MODEL, Server, forwarding_gateway, one_gateway, started
from bench.harness.arguments import add_json, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.live.ports import free_port
from bench.load.client.http import Address
from bench.load.generator.crew import drive
from bench.load.generator.wire import Assignment, Pace, Recipe, Shape
from bench.load.prompts.wording import assumed
from bench.load.results.outcome import Outcome
from bench.models.references import DEFAULT_MODEL
from mesh.errors import UserError

ANSWER_S = 60.0
WORDS = 64
OURS, DIRECT = "MeshServe gateway", "mock backend alone"
FORWARDING = "MeshServe gateway, forwarding"
COLUMNS = ("CPU us / token", "CPU us / request of 1 token", "requests/s of 1 token", "TTFT alone, ms")


def sent(server: Server, num_requests: int, num_slots: int, num_tokens: int, seed: int) -> list[Outcome]:
    """Raise `UserError` if a request fails."""
    fields = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "ignore_eos": True}
    recipe = Recipe("chat", sends_ids=False, seed=seed, fillers=assumed(), fields=fields)
    shapes = (Shape(MODEL, WORDS, num_tokens),) * num_requests
    load = Assignment(Address("127.0.0.1", server.port), {}, recipe, shapes, Pace(None, num_slots), ANSWER_S)
    outcomes = asyncio.run(drive([load], asyncio.Event())).outcomes
    if lost := [outcome for outcome in outcomes if not outcome.is_finished]:
        raise UserError(f"{server.name}: {len(lost)} requests failed, the first one: {lost[0].reason}")
    return outcomes


def measure(server: Server, num_streams: int, num_tokens: int, seed: int) -> tuple[float, ...]:
    """Return the figures of one round, in the order of `COLUMNS`."""
    began_s = server.cpu_s()
    long = sent(server, 4 * num_streams, num_streams, num_tokens, seed)
    token_s = (server.cpu_s() - began_s) / sum(one.output_tokens for one in long)
    began_s = server.cpu_s()
    short = sent(server, 20 * num_streams, num_streams, 1, seed)
    request_s = (server.cpu_s() - began_s) / len(short)
    ttft_s = median(one.ttft_s for one in sent(server, 30, 1, 1, seed) if one.ttft_s is not None)
    return 1e6 * token_s, 1e6 * request_s, len(short) / max(one.ended_s for one in short), 1e3 * ttft_s


@contextmanager
def contestants(routers: Path | None, model: str, step_ms: float) -> Iterator[list[Server]]:
    """The mock backend, the routers before it, and our gateway, all ready."""
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(name: str, port: int, *command: str) -> Server:
            server = stack.enter_context(started(name, port, command, logs / f"{name}.log"))
            server.until_it_answers()
            return server

        port, pace = free_port(), ("--first-ms", str(step_ms), "--gap-ms", str(step_ms), "--model", MODEL)
        mock = (sys.executable, "-m", "bench.gateway.mock_backend", "--port", str(port), *pace)
        found = [start(DIRECT, port, *mock)]
        words = ("--worker-urls", found[0].url, "--policy", "round_robin", "--host", "127.0.0.1")
        for name, more in (("vllm-router", ()), ("smg", ("launch",))) if routers else ():
            port, scraped = free_port(), free_port()
            ports = ("--port", str(port), "--prometheus-port", str(scraped))
            found.append(start(name, port, f"{routers}/{name}", *more, *words, *ports))
        found.append(stack.enter_context(forwarding_gateway(FORWARDING, found[0].url)))
        yield [*found, stack.enter_context(one_gateway(OURS, model, step_ms))]


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
    parser = script_parser("bench.peers.routers", __doc__)
    parser.add_argument("--routers", type=Path, metavar="FOLDER", help="holds vllm-router and smg")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer our gateway uses; must be prepared")
    parser.add_argument("--streams", type=int, default=32, metavar="N", help="concurrent (default: 32)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of an answer (default: 64)")
    parser.add_argument("--step-ms", type=float, default=5.0, metavar="MS", help="between tokens (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    add_json(parser)
    options = parser.parse_args()
    with errors_in_a_line():
        medians = compare(options)
    rows = ([name, *(f"{value:.1f}" for value in values)] for name, values in medians.items())
    print_table("medians", ("",), COLUMNS, rows)
    write_json(options.json, {name: dict(zip(COLUMNS, values, strict=True)) for name, values in medians.items()})


if __name__ == "__main__":
    main()
