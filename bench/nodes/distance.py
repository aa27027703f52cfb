"""Measures TTFT and the gaps between tokens while frames between nodes are delayed and lost.

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
from bench.models.tiny_llama import write_tiny_model
from bench.nodes.cluster import NodeMesh, mesh_on_nodes
from bench.nodes.network import why_not
from bench.nodes.streams import Heard, Streams
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
    second_s: list[float] = field(default_factory=list)  # from their first token to the second: the blocks cross
    tpots_s: list[float] = field(default_factory=list)  # of streams beside each other
    gaps_s: list[float] = field(default_factory=list)  # of all of their tokens

    def cells(self) -> tuple[str, ...]:
        """For the table, in milliseconds."""
        setting = (f"{1e3 * self.delay_s:g}", f"{100 * self.loss:g}")
        early = (quantiles(one, n=10)[0] for one in (self.ttfts_s, self.second_s, self.tpots_s))
        middle = (median(one) for one in (self.ttfts_s, self.second_s, self.tpots_s))
        late = (quantiles(self.gaps_s, n=100)[98], max(self.gaps_s))
        pairs = (f"{1e3 * one:.1f}; {1e3 * other:.1f}" for one, other in zip(early, middle, strict=True))
        return (*setting, *pairs, *(f"{1e3 * gap_s:.0f}" for gap_s in late))


def measure(mesh: NodeMesh, rounds: int) -> list[Distance]:
    found = [Distance(*setting) for setting in SETTINGS]
    numbers = count()
    for _ in range(rounds):
        for distance in found:
            mesh.network.be(distance.delay_s, distance.loss)
            for _ in range(NUM_ALONE):
                (alone,) = _stream(mesh, [f"{next(numbers)}. {PROMPT}"], 8)
                distance.ttfts_s.append(alone.ttft_s)
                distance.second_s.append(alone.answer.gaps_s[0])
            prompts = [f"{next(numbers)}: go on." for _ in range(NUM_STREAMS)]
            for one in _stream(mesh, prompts, NUM_TOKENS):
                distance.tpots_s.append(sum(one.answer.gaps_s) / (NUM_TOKENS - 1))
                distance.gaps_s += one.answer.gaps_s
    mesh.network.be()
    return found


def _stream(mesh: NodeMesh, prompts: Sequence[str], num_tokens: int) -> list[Heard]:
    """Raise `UserError` if an answer is not whole."""
    heard = Streams(mesh.node_of("gateway"), mesh.gateway, prompts, num_tokens).heard()
    for one in heard:
        if not one.answer.is_whole:
            raise UserError(f"an answer has no end: {one.problem or one.answer.problem}")
    return heard


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
    words = ("delay, ms", "loss, %")
    numbers = ("TTFT, ms", "the second token after it", "TPOT", "p99 of gaps", "worst gap")
    table = make_table("The fastest tenth; the median", words, numbers)
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
