"""What a small run decides, to the last bit: who makes the product faster must not change what it does.

A digest changes when a rule or a model does: see that this is what you meant, and write down the new one.
"""

from collections.abc import Sequence
from hashlib import sha256

import pytest

from mesh.wire.control import Role
from router.history.records import Record, encode_line
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import run, topology

ROLES = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}
TRACE = [
    TraceRequest(0.07 * number, 100 + 389 * number % 2900, 1 + 83 * number % 140, (number % 5, number % 3))
    for number in range(150)
]
DIGESTS = {
    "round_robin": "32daf9699a9b27a3",
    "tropical": "231f6dd33b2942ac",
    "disaggregated": "99a04aeaa5689c8d",
    "chunked": "273e23bca492a3e1",
    "elastic": "3f453d53f8bc84d1",
}
COASTING = {"tropical": "67d26d66c8e406cc", "elastic": "e4b4e18b48456391"}


@pytest.mark.parametrize("policy", sorted(DIGESTS))
def test_records_are_the_same_to_the_last_bit(policy: str):
    assert digest(run(topology(ROLES, policy), TRACE, seed=1, coasts=False)) == DIGESTS[policy]


@pytest.mark.parametrize("policy", sorted(COASTING))
def test_those_of_coasting_engines_are_too(policy: str):
    assert digest(run(topology(ROLES, policy), TRACE, seed=1, coasts=True)) == COASTING[policy]


def digest(records: Sequence[Record]) -> str:
    return sha256(b"".join(map(encode_line, records))).hexdigest()[:16]
