"""Prompts that are pooled, in modelled time: nothing follows them, whatever the roles, and whoever dies."""

from dataclasses import replace

import pytest

from mesh.topology.schema import Slo, Task
from mesh.wire.control import Role
from router.history.records import Outcome
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import SERVICE, run, topology

TRACE = [TraceRequest(0.01 * number, 40 + number, 90) for number in range(60)]


@pytest.mark.parametrize("policy", ["tropical", "disaggregated", "elastic", "least_loaded"])
@pytest.mark.parametrize(
    "roles",
    [{"prefill": Role.PREFILL, "decode": Role.DECODE}, {"a": Role.MULTIPLEX, "b": Role.MULTIPLEX}],
    ids=["roles", "alike"],
)
def test_each_ends_with_its_prompt(policy: str, roles: dict[str, Role]):
    what = topology(roles, policy, slo=Slo(5.0, 3600.0))
    [service] = what.services
    records = run(replace(what, services=(replace(service, task=Task.EMBED),)), TRACE)
    assert [record.outcome for record in records] == [Outcome.FINISHED] * len(TRACE)
    assert {record.service for record in records} == {SERVICE}
    assert {record.output_tokens for record in records} == {1}
    assert max(record.ttft_s or 0.0 for record in records) < 5.0
