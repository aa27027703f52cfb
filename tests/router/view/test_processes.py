"""Processes that a gateway heard of, for those who watch the mesh."""

from types import SimpleNamespace

from mesh.wire.status import ChildStatus, SupervisorStatus
from router.view.processes import HeardProcesses


def heard() -> HeardProcesses:
    return HeardProcesses(["supervisor-local"], ["decode-0", "gateway", "gateway~"], silence_s=2.0)


def child(name: str) -> ChildStatus:
    return ChildStatus(name, "engine", 1, "running", 0)


def supervisor(*children: ChildStatus) -> SupervisorStatus:
    return SupervisorStatus(1, "local", 1, list(children))


def test_only_supervisors_say_what_they_watch_and_only_of_the_topology():
    processes = heard()
    processes.hear_supervisor("stranger", supervisor(child("decode-0")))
    assert processes.children() == {}
    processes.hear_supervisor("supervisor-local", supervisor(child("decode-0"), child("stranger")))
    assert list(processes.children()) == ["decode-0"]


def test_a_gateway_is_known_by_its_name_in_the_topology_until_it_is_silent():
    processes = heard()
    processes.hear_gateway("gateway", SimpleNamespace(admin_url="http://old"), 0.0)
    processes.hear_gateway("gateway~", SimpleNamespace(admin_url="http://new"), 1.0)
    processes.hear_gateway("stranger", SimpleNamespace(admin_url="http://stranger"), 1.0)
    assert processes.admin_urls(2.5) == {"gateway": "http://new"}
    assert processes.admin_urls(3.5) == {}


def test_what_they_said_last_is_read_until_they_are_silent_or_ended():
    processes, said = heard(), SimpleNamespace(admin_url="")
    processes.hear_gateway("gateway", said, 0.0)
    processes.hear_supervisor("supervisor-local", supervisor())
    processes.renew("gateway", 2.0)
    assert processes.statuses(3.5) == {"supervisor-local": supervisor(), "gateway": said}
    assert list(processes.statuses(4.5)) == ["supervisor-local"]
    processes.hear_gateway("gateway", said, 5.0)
    processes.forget("gateway")
    assert list(processes.statuses(5.0)) == ["supervisor-local"]
