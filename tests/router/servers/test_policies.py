"""Every dispatch policy works on servers as on engines that prefill and decode."""

import asyncio

import pytest

from router.policies.registry import policies
from tests.router.front import front_of
from tests.router.servers.nasty import answer, serving


@pytest.mark.parametrize("policy", sorted(policies()))
async def test_every_policy_serves_from_servers(tmp_path, policy):
    async with serving(answer, answer) as servers, front_of(tmp_path, *servers, policy=policy) as front:
        answers = await asyncio.gather(*(front.stream(max_tokens=3) for _ in range(8)))
    assert {text for text, _ in answers} == {"w0 w1 w2 "}
    assert sum(len(server.asked) for server in servers) >= 8
    assert {record.outcome for record in front.records} == {"finished"}
