"""Decode rates of a modelled engine with a draft model and without, by requests at once and by how often it is right.

    python -m bench.drafts [--requests 1 4 16 64] [--json FILE]

The product's own gateway and engine, simulated: a Llama 3 of 70B and one of 8B are on one engine of four H100s, which
decides how many tokens to draft. All requests come at once; a rate is that of one request, from its first token to its
last.
"""

from dataclasses import replace
from statistics import fmean

from bench.harness.arguments import script_parser
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
PROFILES = {LARGE: "h100-llama3-70b-tp4", SMALL: "h100-llama3-8b-tp4"}
ACCEPTANCES = (0.5, 0.7, 0.9)
SLO = Slo(600.0, 1.0)  # nothing but rates counts
NUM_PROMPT, NUM_ANSWER = 1000, 200


def decode_rate(num_requests: int, acceptance: float | None) -> float:
    """Return the tokens a second of one of so many requests. ``acceptance`` None: nothing is drafted."""
    small = ServiceSpec(SMALL, SMALL, SLO)
    large = ServiceSpec(LARGE, LARGE, SLO)
    if acceptance is not None:
        large = replace(large, speculation=DraftMethod.DRAFT_MODEL, draft=SMALL)
    engine = modelled_engine(
        "engine", LARGE, PROFILES[LARGE], services=(LARGE, SMALL), max_running=512, chunk_tokens=2048
    )
    fleet = make_fleet("drafts", (large, small), [engine], PolicySpec("least_loaded"))
    shared = SharedProfile.of({name: load_preset(profile) for name, profile in PROFILES.items()})
    physics = Physics() if acceptance is None else Physics(draft_acceptance=acceptance)
    simulation = make_simulation(fleet, shared, 0, physics=physics)
    records = serve(simulation, LARGE, [TraceRequest(0.0, NUM_PROMPT, NUM_ANSWER) for _ in range(num_requests)])
    return 1 / fmean([record.tpot_s or 0.0 for record in records])


def main() -> None:
    parser = script_parser("bench.drafts", __doc__, json=True)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 16, 64], metavar="N", help="at once")
    options, found = parser.parse_args(), []
    for number in options.requests:
        plain = decode_rate(number, None)
        ratios = [decode_rate(number, one) / plain for one in ACCEPTANCES]
        found.append({"requests": number, "tokens_per_s": plain, "ratios": ratios})
    rows = [
        [str(row["requests"]), f"{row['tokens_per_s']:.1f}", *(f"{one:.2f}x" for one in row["ratios"])] for row in found
    ]
    names = [f"right: {one:g}" for one in ACCEPTANCES]
    print_table("decode, tokens a second of a request", ("requests", "without drafts", *names), (), rows)
    write_json(options.json, found)


if __name__ == "__main__":
    main()
