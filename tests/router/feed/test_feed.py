"""The frames of one gateway's feed, in their turns."""

from mesh.wire.control import ProcessState
from mesh.wire.placement import PlacementStatus
from router.feed.feed import MESH_EVERY, SLOW_EVERY, Feed
from router.feed.frames import Hello, MeshFrame, PlacementFrame, PromisesFrame, RequestsFrame, decode
from router.history.timelines import Timelines
from tests.router.cluster import SERVICE, make_spec
from tests.router.feed_sources import engine_row, report_of, sources_of, wall


def frames(events: bytes):
    blocks = [block.split(b"\n") for block in events.split(b"\n\n") if block]
    told = [decode(data.removeprefix(b"data: ")) for _, data in blocks]
    assert [name.decode() for name, _ in blocks] == [f"event: {type(one).__struct_config__.tag}" for one in told]
    return told


def test_a_newcomer_hears_how_everything_is():
    feed = Feed(sources_of())
    feed.tick(1.0)
    hello, mesh, promises, placement, requests = frames(feed.snapshot(1.1))
    assert isinstance(hello, Hello)
    assert (hello.gateway, hello.mesh, hello.services[0].name, hello.services[0].ttft_s) == ("g", "test", SERVICE, 1.0)
    assert isinstance(mesh, MeshFrame)
    assert list(mesh.engines) == ["decode-0"]
    assert (promises, placement.status, requests.events) == (PromisesFrame(wall(1.1), 5, []), None, [])


def test_a_quiet_mesh_is_told_in_no_bytes():
    feed = Feed(sources_of())
    feed.tick(1.0)
    assert {feed.tick(1.0 + tick / 10) for tick in range(1, 3 * SLOW_EVERY)} == {b""}


def test_requests_are_told_each_tick_and_rows_less_often():
    timelines, running = Timelines(), [0]

    def report(now):
        running[0] += 1
        return report_of(engine_row("decode-0", running=running[0]))

    feed = Feed(sources_of(timelines, report))
    feed.tick(0.0)
    kinds = []
    for tick in range(1, SLOW_EVERY + 1):
        timelines.arrived(make_spec(f"{tick}"), tick / 10)
        kinds.append([type(frame) for frame in frames(feed.tick(tick / 10))])
    assert all(RequestsFrame in told for told in kinds)
    assert sum(MeshFrame in told for told in kinds) == SLOW_EVERY // MESH_EVERY
    assert running[0] == 1 + SLOW_EVERY // MESH_EVERY


def test_what_the_placement_daemon_says_is_told_when_it_says_more():
    heard = []
    feed = Feed(sources_of(placement=lambda: heard[-1] if heard else None))
    feed.tick(0.0)
    heard.append(PlacementStatus(1, ProcessState.READY, "local", 1, "shadow", "watching", 0, 5.0))
    told = [frame for tick in range(1, 2 * SLOW_EVERY + 1) for frame in frames(feed.tick(tick / 10))]
    assert [type(frame) for frame in told] == [PlacementFrame]
    assert told[0].status["doing"] == "watching"
