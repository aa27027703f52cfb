"""Requests that leave an engine: when they may begin, go, stay, or are for their gateway to dispatch anew."""

import pytest

from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.transfers.outcomes import (
    Admitted,
    EngineOutcome,
    HandedOver,
    Migrated,
    NotHandedOver,
    NotMigrated,
    Unpinned,
)
from engines.transfers.outgoing import RESERVED_AHEAD, Departures
from kvtransfer.protocol import ExportBlocks, Exported, Send
from mesh.wire.requests import RefusalCode
from mesh.wire.transfers import Abort, Commit, Committed, Declined, Reserve, Reserved, Taken
from tests.engines.conftest import MakeSequence
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import SERVICE


class Sender:
    """The departures of an engine. Its requests hold the blocks of their prompts."""

    def __init__(self, make_sequence: MakeSequence) -> None:
        core = VirtualMesh().add("prefill", num_blocks=64).core
        self.service: Service = core._services[SERVICE]
        self.departures = Departures(core._settings)
        self._make_sequence = make_sequence

    def request(self, name: str = "r", *, decodes: bool = False) -> EngineRequest:
        request = self._make_sequence(name)
        request.decode_engine = "decode"
        request.blocks = self.service.pool.allocate(3)
        if decodes:
            request.advance(8, self.service.pool)
            request.append(7, None, 0.0)
            self.service.queue.running.append(request)
        return request

    def reserve(self, request: EngineRequest) -> str:
        """Ask the decode engine; the transfer's name."""
        self.departures.reserve(self.service, request, 0.0, 0.0)
        assert request.transfer is not None
        return request.transfer

    def migrate(self, request: EngineRequest) -> str:
        self.departures.migrate(self.service, request, "decode", 0.0)
        assert request.transfer is not None
        return request.transfer

    def hear(self, message: Reserved | Declined | Taken | Committed | Abort, now: float = 0.1) -> list[EngineOutcome]:
        return self.departures.answered(message, now)

    def export_all(self, outcomes: list[EngineOutcome]) -> list[EngineOutcome]:
        """All copies are done and taken at once."""
        following: list[EngineOutcome] = []
        for job in outcomes:
            if isinstance(job, ExportBlocks):
                following += self.departures.exported(job.transfer, Exported(job.seq, [0], [], ()), 0.1)
                following += self.hear(Taken(job.transfer, job.seq, ok=True))
        return [*outcomes, *(self.export_all(following) if following else [])]


@pytest.fixture
def sender(make_sequence: MakeSequence) -> Sender:
    return Sender(make_sequence)


def sent(outcomes: list[EngineOutcome]) -> list[type]:
    return [type(outcome.message) for outcome in outcomes if isinstance(outcome, Send)]


def hand_over(sender: Sender, request: EngineRequest) -> tuple[str, list[EngineOutcome]]:
    """Up to its commit."""
    transfer = sender.reserve(request)
    sender.hear(Reserved(transfer, 0, "shm"))
    request.advance(8, sender.service.pool)
    request.append(7, None, 0.1)
    outcomes = sender.export_all(sender.departures.commit(request, 0.1))
    return transfer, outcomes


def test_a_prefill_begins_once_its_blocks_are_kept(sender: Sender):
    request = sender.request()
    transfer = sender.reserve(request)
    assert sender.departures.reserving(SERVICE) == [request]
    assert Admitted(sender.service, request) in sender.hear(Reserved(transfer, 0, "shm"))
    assert sender.departures.reserving(SERVICE) == []


def test_a_request_that_ended_meanwhile_does_not_begin(sender: Sender):
    request = sender.request()
    transfer = sender.reserve(request)
    request.is_over = True
    assert not [one for one in sender.hear(Reserved(transfer, 0, "shm")) if isinstance(one, Admitted)]


def test_only_some_reservations_are_open_at_a_time(sender: Sender):
    for number in range(RESERVED_AHEAD):
        assert sender.departures.may_reserve(SERVICE, lambda _: False)
        sender.reserve(sender.request(f"r{number}"))
    assert not sender.departures.may_reserve(SERVICE, lambda _: False)


def test_reservations_of_prompts_that_are_passed_are_in_nobodys_way(sender: Sender):
    for number in range(RESERVED_AHEAD):
        sender.reserve(sender.request(f"r{number}"))
    assert sender.departures.may_reserve(SERVICE, lambda request: request.id == "r0")


def test_a_declined_request_is_for_its_gateway(sender: Sender):
    request = sender.request()
    transfer = sender.reserve(request)
    outcomes = sender.hear(Declined(transfer, RefusalCode.NO_MEMORY, "no room"))
    assert NotHandedOver(request, RefusalCode.NO_MEMORY, "no room") in outcomes
    assert Unpinned(request) in outcomes
    assert sender.departures.is_idle


def test_a_request_is_handed_over_when_the_peer_says_so(sender: Sender):
    request = sender.request()
    transfer, outcomes = hand_over(sender, request)
    assert sent(outcomes)[-1] is Commit
    assert request in sender.service.queue.pinned
    outcomes = sender.hear(Committed(transfer, 8))
    assert HandedOver(request) in outcomes
    assert request not in sender.service.queue.pinned
    assert sender.departures.is_idle


def test_a_peer_that_dies_before_the_commit_leaves_the_request_to_its_gateway(sender: Sender):
    request = sender.request()
    sender.reserve(request)
    outcomes = sender.departures.lose_peer("decode", 0.1)
    assert [type(one) for one in outcomes if not isinstance(one, Send | Unpinned)] == [NotHandedOver]


def test_a_migrating_request_stays_if_its_taker_declines(sender: Sender):
    request = sender.request(decodes=True)
    transfer = sender.migrate(request)
    outcomes = sender.hear(Declined(transfer, RefusalCode.FULL, "full"))
    assert NotMigrated(request, "decode") in outcomes
    assert request.transfer is None
    assert sender.departures.tally.num_aborted == 1


def test_a_migrated_request_is_the_takers(sender: Sender):
    request = sender.request(decodes=True)
    transfer = sender.migrate(request)
    sender.export_all(sender.hear(Reserved(transfer, 0, "shm")))
    assert sender.departures.may_commit(request)
    assert Commit in sent(sender.export_all(sender.departures.commit(request, 0.2)))
    [migrated] = [one for one in sender.hear(Committed(transfer, 8)) if isinstance(one, Migrated)]
    assert (migrated.to, migrated.epoch) == ("decode", request.epoch.handed_over())
    assert sender.departures.tally.num_completed == 1


def test_after_its_commit_nobody_knows_who_has_a_migrating_request(sender: Sender):
    request = sender.request(decodes=True)
    transfer = sender.migrate(request)
    sender.export_all(sender.hear(Reserved(transfer, 0, "shm")))
    sender.export_all(sender.departures.commit(request, 0.2))
    outcomes = sender.departures.lose_peer("decode", 0.3)
    [failed] = [one for one in outcomes if isinstance(one, NotHandedOver)]
    assert failed.code is RefusalCode.UNKNOWN_OWNER


def test_migrations_are_numbered_anew(sender: Sender):
    request = sender.request(decodes=True)
    first = sender.migrate(request)
    sender.hear(Declined(first, RefusalCode.FULL, "full"))
    assert sender.migrate(request) != first


def test_a_reserve_carries_what_the_request_needs_there(sender: Sender):
    request = sender.request()
    [ask] = sender.departures.reserve(sender.service, request, 1.5, 2.0)
    assert isinstance(ask, Send)
    reserve = ask.message
    assert isinstance(reserve, Reserve)
    assert (ask.to, reserve.num_tokens, reserve.spec.age_s) == ("decode", 8, 2.0)
    assert reserve.deadline_s == 5.0 + 2 * 1.5


def test_only_migrations_are_migrating(sender: Sender):
    handed_over, migrated = sender.request("handed over"), sender.request("migrated", decodes=True)
    sender.reserve(handed_over)
    sender.migrate(migrated)
    assert sender.departures.leaving() == [("decode", migrated)]


def test_an_engine_that_did_not_answer_is_not_asked_again_at_once(sender: Sender):
    first = sender.request("first")
    sender.reserve(first)
    assert any(isinstance(outcome, NotHandedOver) for outcome in sender.departures.expire(0.5))
    asked = sender.request("asked")
    for now, is_asked in ((0.99, False), (1.0, True)):
        outcomes = sender.departures.reserve(sender.service, asked, 0.0, now)
        refused = [outcome.code for outcome in outcomes if isinstance(outcome, NotHandedOver)]
        assert refused == ([] if is_asked else [RefusalCode.PEER_SILENT])


def test_an_answer_to_anything_shows_that_an_engine_is_there(sender: Sender):
    other = sender.reserve(sender.request("other"))
    sender.hear(Reserved(other, 0, "shm"))
    sender.reserve(sender.request("first"))
    sender.departures.expire(0.5)
    sender.hear(Abort(other, "no"), now=0.6)
    outcomes = sender.departures.reserve(sender.service, sender.request("asked"), 0.0, 0.6)
    assert [type(outcome.message) for outcome in outcomes if isinstance(outcome, Send)] == [Reserve]
