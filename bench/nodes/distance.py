"""Measures TTFT, TPOT and gaps while frames between nodes are delayed and lost.

Clients are on the gateway's node, so that only what processes of the mesh say to each other is disturbed. Settings
take turns.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer, Load, Sending, answers_of
from bench.load.client.answer import OK
from bench.models.tiny_llama import write_tiny_model
from bench.nodes.cluster import NodeMesh, mesh_on_nodes
from bench.nodes.network import why_not
from mesh.errors import UserError

SETTINGS = ((0.0, 0.0), (0.002, 0.0), (0.0, 0.001), (0.002, 0.001))  # (delay in s, one way; loss)
NUM_STREAMS = 8
NUM_TOKENS = 400
NUM_ALONE = 10  # prompts in each round, one after the other
PROMPT = "These words are so many that their blocks take a while to cross. " * 8


@dataclass(slots=True)
class Distance:
    """What clients saw with one setting, in seconds."""

    delay_s: float
    loss: float
    ttfts_s: list[float] = field(default_factory=list)  # of prompts that were alone
    tpots_s: list[float] = field(default_factory=list)  # of streams beside each other
    gaps_s: list[float] = field(default_factory=list)  # the longest one of each stream

    def cells(self) -> tuple[str, ...]:
        """For the table, in milliseconds."""
        tenths = (
            f"{1e3 * quantiles(one, n=10)[0]:.1f}; {1e3 * median(one):.1f}" for one in (self.ttfts_s, self.tpots_s)
        )
        gaps = (f"{1e3 * gap_s:.0f}" for gap_s in (median(self.gaps_s), max(self.gaps_s)))
        return (f"{1e3 * self.delay_s:g}", f"{100 * self.loss:g}", *tenths, *gaps)


def measure(mesh: NodeMesh, rounds: int) -> list[Distance]:
    found = [Distance(*setting) for setting in SETTINGS]
    numbers = count()
    for _ in range(rounds):
        for distance in found:
            mesh.network.be(distance.delay_s, distance.loss)
            alone = [f"{next(numbers)}. {PROMPT}" for _ in range(NUM_ALONE)]
            distance.ttfts_s += [one.first_s - one.sent_s for one in _stream(mesh, alone, 8, one_by_one=True)]
            for one in _stream(mesh, [f"{next(numbers)}: go on." for _ in range(NUM_STREAMS)], NUM_TOKENS):
                distance.tpots_s.append((one.last_s - one.first_s) / (NUM_TOKENS - 1))
                distance.gaps_s.append(one.gap_s)
    mesh.network.be()
    return found


def _stream(mesh: NodeMesh, prompts: Sequence[str], num_tokens: int, *, one_by_one: bool = False) -> list[Answer]:
    """Raise `UserError` if an answer is not whole."""
    sendings = [Sending(0.0, prompt, num_tokens) for prompt in prompts]
    load = Load(mesh.gateway.port, "tiny", sendings, one_by_one=one_by_one, host=mesh.gateway.host)
    answers = answers_of(load, within=mesh.node_of("gateway").within)
    if any(one.status != OK for one in answers):
        raise UserError("an answer has no end")
    return answers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = script_parser("bench.nodes.distance", __doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of all settings (default: 5)")
    add_json(parser)
    options = parser.parse_args(arguments)
    if reason := why_not():
        raise UserError(reason)
    with tempfile.TemporaryDirectory(prefix="nodes") as name:
        folder = Path(name)
        (folder / "nodes").mkdir()
        with mesh_on_nodes(folder / "nodes", write_tiny_model(folder / "model")) as mesh:
            found = measure(mesh, options.rounds)
    numbers = ("TTFT, ms", "TPOT", "longest gap of a stream", "of all")
    table = make_table("The fastest tenth; the median", ("delay, ms", "loss, %"), numbers)
    for distance in found:
        table.add_row(*distance.cells())
    make_console().print(table)
    if options.json is not None:
        write_json(options.json, found)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"bench.nodes.distance: {error}")
