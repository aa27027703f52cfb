"""What a small run decides, to the last bit: who makes the product faster must not change what it does.

A digest changes when a rule or a model does: see that this is what you meant, and write down the new one.
"""

from hashlib import sha256

import pytest

from bench.simulation.trace_request import TraceRequest
from mesh.messages import Role
from router.records import encode_line
from tests.bench.simulation.small import run, topology

ROLES = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}
TRACE = [
    TraceRequest(0.07 * number, 100 + 389 * number % 2900, 1 + 83 * number % 140, (number % 5, number % 3))
    for number in range(150)
]
DIGESTS = {
    "round_robin": "32daf9699a9b27a3",
    "tropical": "5d7c4a54b308ecc7",
    "disaggregated": "b59f032e852c33aa",
    "chunked": "78d2d54983602550",
}


@pytest.mark.parametrize("policy", sorted(DIGESTS))
def test_records_are_the_same_to_the_last_bit(policy: str) -> None:
    records = run(topology(ROLES, policy), TRACE, seed=1)
    assert sha256(b"".join(map(encode_line, records))).hexdigest()[:16] == DIGESTS[policy]
