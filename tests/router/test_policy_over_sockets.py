"""A gateway takes the policies that it is told to run, and those that other gateways run."""

import asyncio
from dataclasses import replace

import pytest

from mesh.addresses import seats
from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import GatewaySpec
from mesh.wire.control import PolicyChoice, ProcessState, SetPolicy
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus
from tests.router.cluster import M0
from tests.router.scripted_mesh import DEADLINE_S, TIMING, Mesh, first, spec, wait_until_serving

OTHER = "gateway-other"


@pytest.fixture
async def mesh(tmp_path):
    mesh = Mesh(tmp_path, [M0])
    for name in seats(OTHER):
        mesh.endpoints[name] = Endpoints(f"ipc://{tmp_path}/{name}.in", f"ipc://{tmp_path}/{name}.out")
    gateways = (*mesh.topology.gateways, GatewaySpec(OTHER))
    patient = replace(TIMING, lease_s=3600.0, reply_s=3600.0)  # silence is not what these tests are about
    mesh.topology = replace(mesh.topology, gateways=gateways, timing=patient)
    async with mesh.running():
        await wait_until_serving(mesh, 1)
        yield mesh


@pytest.fixture
async def other(mesh):
    """The sockets of another gateway."""
    sockets = Sockets(Sender(OTHER, 1), mesh.endpoints, SetPolicy)
    sockets.bind()
    yield sockets
    await sockets.close()


async def until_it_runs(mesh, name, version):
    async with asyncio.timeout(DEADLINE_S):
        while (mesh.router.status().policy.name, mesh.router.status().policy.version) != (name, version):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def status(choice):
    return GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, choice)


async def test_a_switch_lets_running_requests_run(mesh, other):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    assert other.send("gateway", SetPolicy(PolicyChoice("colocated", {}, 1)))
    await until_it_runs(mesh, "colocated", 1)
    mesh.engines[M0].say_tokens(submit, 10)
    async with asyncio.timeout(DEADLINE_S):
        assert (await first(generation)).tokens == (10,)
    mesh.router.submit(spec("next"))
    await mesh.engines[M0].accept()
    assert [one.policy for one in mesh.router.timelines.of("next").decisions] == ["colocated"]


async def test_what_another_gateway_runs_is_taken_if_it_is_later(mesh, other):
    for choice in (PolicyChoice("round_robin", {}, 7), PolicyChoice("colocated", {}, 6)):
        other.publish(status(choice))
    beats = asyncio.create_task(beat(other, status(PolicyChoice("round_robin", {}, 7))))
    await until_it_runs(mesh, "round_robin", 7)
    beats.cancel()


async def beat(sockets, message):
    while True:
        sockets.publish(message)
        await asyncio.sleep(0.05)


async def test_a_policy_that_this_gateway_does_not_know_changes_nothing(mesh, other):
    assert other.send("gateway", SetPolicy(PolicyChoice("of a newer version", {}, 9)))
    assert other.send("gateway", SetPolicy(PolicyChoice("colocated", {}, 1)))
    await until_it_runs(mesh, "colocated", 1)
