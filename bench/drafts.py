"""Decode rates of a modelled engine with a draft model and without, by requests at once and by how often it is right.

    python -m bench.drafts [--profile h100-llama3-70b-tp4] [--draft-profile h100-llama3-8b-tp4]
        [--requests 1 4 16 64] [--acceptance 0.5 0.7 0.9] [--json FILE]

The product's own gateway and engine, simulated: both models are on one engine, which decides how many tokens to draft.
All requests come at once; a rate is that of one request, from its first token to its last.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import make_fleet, make_simulation, modelled_engine, serve
from engines.costs.presets import load_preset
from mesh.rules import DraftMethod
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest

LARGE, SMALL = "large", "small"
SLO = Slo(600.0, 1.0)  # nothing but rates counts
NUM_PROMPT, NUM_ANSWER = 1000, 200


def decode_rate(profiles: Sequence[str], num_requests: int, acceptance: float | None) -> float:
    """Return the tokens a second of one of so many requests. ``acceptance`` None: nothing is drafted."""
    small = ServiceSpec(SMALL, SMALL, SLO)
    large = ServiceSpec(LARGE, LARGE, SLO)
    if acceptance is not None:
        large = replace(large, speculation=DraftMethod.DRAFT_MODEL, draft=SMALL)
    engine = modelled_engine("engine", LARGE, profiles[0], services=(LARGE, SMALL), max_running=512, chunk_tokens=2048)
    fleet = make_fleet("drafts", (large, small), [engine], PolicySpec("least_loaded"))
    shared = SharedProfile.of(dict(zip((LARGE, SMALL), map(load_preset, profiles), strict=True)))
    physics = Physics() if acceptance is None else Physics(draft_acceptance=acceptance)
    simulation = make_simulation(fleet, shared, 0, physics=physics)
    records = serve(simulation, LARGE, [TraceRequest(0.0, NUM_PROMPT, NUM_ANSWER) for _ in range(num_requests)])
    return 1 / fmean([record.tpot_s or 0.0 for record in records])


@errors_in_a_line()
def main() -> None:
    parser = script_parser("bench.drafts", __doc__, json=True)
    parser.add_argument("--profile", default="h100-llama3-70b-tp4", help="of the model that is served")
    parser.add_argument("--draft-profile", default="h100-llama3-8b-tp4", help="of the draft model, on the same devices")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 16, 64], metavar="N", help="at once")
    parser.add_argument("--acceptance", type=float, nargs="+", default=[0.5, 0.7, 0.9], metavar="P")
    options = parser.parse_args()
    profiles, found = (options.profile, options.draft_profile), []
    for number in options.requests:
        plain = decode_rate(profiles, number, None)
        ratios = [decode_rate(profiles, number, one) / plain for one in options.acceptance]
        found.append({"requests": number, "tokens_per_s": plain, "ratios": ratios})
    rows = [
        [str(row["requests"]), f"{row['tokens_per_s']:.1f}", *(f"{one:.2f}x" for one in row["ratios"])] for row in found
    ]
    names = [f"right: {one:g}" for one in options.acceptance]
    print_table("decode, tokens a second of a request", ("requests", "without drafts", *names), (), rows)
    write_json(options.json, found)


if __name__ == "__main__":
    main()
