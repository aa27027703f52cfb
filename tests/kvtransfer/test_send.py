from dataclasses import replace

import msgspec
import pytest

from kvtransfer.machine import ProtocolError
from kvtransfer.protocol import (
    BlocksReady,
    Cancelled,
    CommitRequested,
    Completed,
    ExportBlocks,
    Exported,
    PeerLost,
    ReleaseSource,
    Send,
    TransferFailed,
    TransferLimits,
)
from kvtransfer.send import SendState, SendTransfer
from mesh.wire.requests import RefusalCode
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Declined, Extend, Extended, Reserved, Taken

TABLE = [10, 11, 12, 13, 14]
LIMITS = TransferLimits(reply_s=1.0, window=2, message_bytes=2 * 512)


@pytest.fixture
def transfer(make_reserve):
    sender = SendTransfer("decode-0", make_reserve(), LIMITS, now=0.0)
    yield sender
    sender.check_invariants()


def opened(transfer, transport="shm", matched=0):
    assert transfer.handle(Reserved("t", matched, transport), 0.1) == []
    return transfer


def export(transfer, effects, now=0.2):
    """Carry out the exports; return the messages sent."""
    sent = []
    for effect in effects:
        if isinstance(effect, ExportBlocks):
            generations = [0] * len(effect.blocks)
            sent += export(transfer, transfer.handle(Exported(effect.seq, generations, [], ()), now), now)
        elif isinstance(effect, Send):
            sent.append(effect.message)
    return sent


def test_start_reserves(transfer, make_reserve):
    assert transfer.start() == [Send("decode-0", make_reserve())]
    assert transfer.next_deadline() == LIMITS.repeat_s


def test_full_blocks_leave_as_they_are_computed(transfer):
    opened(transfer)
    assert transfer.handle(BlocksReady(3, TABLE[:1]), 0.2) == []
    effects = transfer.handle(BlocksReady(9, TABLE[:3]), 0.3)
    assert effects == [ExportBlocks("t", "tiny", "shm", 0, [10, 11], "decode-0")]
    assert export(transfer, effects) == [Blocks("t", 0, 0, 8, [10, 11], [0, 0], [])]


def test_blocks_that_the_receiver_has_are_not_sent(transfer):
    opened(transfer, matched=8)
    assert transfer.handle(BlocksReady(13, TABLE[:4]), 0.2) == [ExportBlocks("t", "tiny", "shm", 0, [12], "decode-0")]


def test_the_window_holds_back_what_the_peer_has_not_taken(transfer):
    opened(transfer)
    sent = export(transfer, transfer.handle(BlocksReady(20, TABLE), 0.2))
    assert [message.first_block for message in sent] == [0, 2]
    assert [message.first_block for message in export(transfer, transfer.handle(Taken("t", 0, True), 0.3))] == [4]
    assert transfer.handle(Taken("t", 0, True), 0.4) == []
    assert transfer.ignored == {"Taken": 1}


def test_commit_sends_the_partial_block_then_itself(transfer):
    opened(transfer)
    sent = export(transfer, transfer.handle(CommitRequested([7], 6, TABLE[:2], 0.5, 0.25), 0.2), now=1.2)
    assert sent == [Blocks("t", 0, 0, 6, [10, 11], [0, 0], []), Commit("t", [7], 1, 1.5, 1.25)]
    assert transfer.handle(Committed("t", 6), 0.4) == [ReleaseSource("t"), Completed("t", 6)]
    assert transfer.state is SendState.DONE
    assert transfer.next_deadline() is None


def test_computing_may_overtake_the_reservation(transfer):
    transfer.handle(BlocksReady(4, TABLE[:1]), 0.1)
    assert transfer.handle(CommitRequested([7], 5, TABLE[:2], 0.0, None), 0.2) == []
    assert transfer.next_deadline() == LIMITS.repeat_s
    sent = export(transfer, transfer.handle(Reserved("t", 0, "tcp"), 0.24))
    assert [type(message) for message in sent] == [Blocks, Commit]


def test_corrupt_blocks_end_the_copying_but_not_the_transfer(transfer):
    opened(transfer)
    export(transfer, transfer.handle(BlocksReady(8, TABLE[:2]), 0.2))
    transfer.handle(Taken("t", 0, False), 0.3)
    assert transfer.handle(BlocksReady(20, TABLE), 0.4) == []
    assert transfer.handle(CommitRequested([7], 20, TABLE, 0.0, None), 0.5) == [
        Send("decode-0", Commit("t", [7], 1, 0.0, None))
    ]


def test_commit_does_not_overtake_an_export(transfer):
    opened(transfer)
    effects = transfer.handle(BlocksReady(8, TABLE[:2]), 0.2)
    assert transfer.handle(CommitRequested([7], 8, TABLE[:2], 0.0, None), 0.3) == []
    assert transfer.handle(Committed("t", 8), 0.3) == [], "an answer to a Commit that was not sent"
    assert [type(message) for message in export(transfer, effects)] == [Blocks, Commit]


def test_silence_after_reserve(transfer, make_reserve):
    for now in (0.25, 0.5, 0.75):
        assert transfer.next_deadline() == now
        assert transfer.expire(now) == [Send("decode-0", make_reserve())], "resent, as it may have been lost"
    assert transfer.expire(0.99) == []
    abort, failed, release = transfer.expire(1.0)
    assert isinstance(abort.message, Abort)
    assert failed == TransferFailed("t", RefusalCode.PEER_SILENT, "decode-0 did not answer within 1 s")
    assert release == ReleaseSource("t")
    assert transfer.handle(BlocksReady(8, TABLE[:2]), 1.1) == []


def test_a_commit_is_resent_until_it_is_answered(transfer):
    opened(transfer)
    export(transfer, transfer.handle(CommitRequested([7], 4, TABLE[:1], 0.5, None), 0.25))
    assert transfer.next_deadline() == 0.45, "a quarter of a second after the blocks were exported"
    assert transfer.expire(0.5) == [Send("decode-0", Commit("t", [7], 1, 0.75, None))]
    assert [type(effect) for effect in transfer.handle(Committed("t", 4), 0.6)] == [ReleaseSource, Completed]


@pytest.fixture
def migration(make_reserve):
    reserve = msgspec.structs.replace(make_reserve(num_tokens=32), is_migration=True)
    sender = SendTransfer("decode-0", reserve, replace(LIMITS, migration_s=30.0), now=0.0)
    yield opened(sender)
    sender.check_invariants()


def test_a_migration_sends_one_message_at_a_time_until_its_request_stops(migration):
    sent = export(migration, migration.handle(BlocksReady(16, TABLE), 0.2))
    assert [message.first_block for message in sent] == [0]
    assert not migration.is_nearly_done
    sent = export(migration, migration.handle(Taken("t", 0, True), 0.3))
    assert [message.first_block for message in sent] == [2]
    assert migration.is_nearly_done, "what is left is the last message's"
    sent = export(migration, migration.handle(CommitRequested([7], 18, TABLE, 0.0, None), 0.4))
    assert [type(message) for message in sent] == [Blocks, Commit], "with the last message still to be taken"


def test_room_is_asked_for_again_until_there_is_an_answer(migration):
    extend = Extend("t", 31 + 16)
    assert extend in export(migration, migration.handle(BlocksReady(31, [*TABLE, 15, 16, 17]), 0.25), 0.25)
    assert migration.expire(0.5) == [Send("decode-0", extend)]
    migration.handle(Extended("t", 47), 0.6)
    assert migration.next_deadline() == 0.25 + 10.0, "blocks that are not taken are all that is owed"


def test_all_of_a_migration_has_a_deadline(migration):
    """Each message is taken in time, but they do not come to an end."""
    now = 0.2
    export(migration, migration.handle(BlocksReady(16, TABLE), now), now)
    for seq in range(3):
        now += 9.0
        export(migration, migration.handle(Taken("t", seq, True), now), now)
        export(migration, migration.handle(BlocksReady(16, TABLE), now), now)
    assert migration.next_deadline() == 30.0
    abort, failed, release = migration.expire(30.0)
    assert isinstance(abort.message, Abort)
    assert failed == TransferFailed("t", RefusalCode.TRANSFER_FAILED, "it took longer than 30 s")
    assert release == ReleaseSource("t")


def test_a_request_that_stopped_in_time_is_not_late(migration):
    export(migration, migration.handle(CommitRequested([7], 4, TABLE, 0.0, None), 29.9), 29.9)
    assert [type(effect) for effect in migration.handle(Committed("t", 4), 30.1)] == [ReleaseSource, Completed]


def test_declined(transfer):
    effects = transfer.handle(Declined("t", RefusalCode.NO_MEMORY, "full"), 0.1)
    assert effects == [TransferFailed("t", RefusalCode.NO_MEMORY, "full"), ReleaseSource("t")]


def test_an_unknown_transport_fails(transfer):
    abort, failed, _ = transfer.handle(Reserved("t", 0, "carrier pigeon"), 0.1)
    assert isinstance(abort.message, Abort)
    assert failed.code is RefusalCode.TRANSFER_FAILED


def test_nothing_is_owed_while_nothing_was_sent(transfer):
    assert opened(transfer).next_deadline() is None


def test_a_late_deadline_comes_before_the_event(transfer):
    opened(transfer)
    export(transfer, transfer.handle(CommitRequested([7], 8, TABLE[:2], 0.0, None), 0.2))
    effects = transfer.handle(Committed("t", 8), 10.3)
    assert [type(effect) for effect in effects] == [Send, TransferFailed, ReleaseSource]


@pytest.mark.parametrize(("anew_s", "patience_s"), [(0.0, 1.5), (4.0, 4.0), (99.0, 10.0)])
def test_a_stopped_request_waits_for_progress_as_long_as_computing_it_anew_takes(make_reserve, anew_s, patience_s):
    transfer = opened(SendTransfer("decode-0", make_reserve(deadline_s=10.0), LIMITS, 0.0, anew_s))
    export(transfer, transfer.handle(BlocksReady(8, TABLE[:2]), 0.2), 0.2)
    transfer.handle(CommitRequested([7], 8, TABLE[:2], 0.0, None), 0.3)
    transfer.handle(Taken("t", 0, True), 0.4)
    for late in range(1, 4):
        transfer.expire(0.4 + late * patience_s / 4)
    assert transfer.state is SendState.COMMITTING
    abort, failed, _ = transfer.expire(0.4 + patience_s)
    assert isinstance(abort.message, Abort)
    assert failed.code is RefusalCode.TRANSFER_FAILED


@pytest.mark.parametrize("ending", [Abort("t", "no"), PeerLost()])
def test_a_peer_that_ends_it_frees_the_blocks_at_once(transfer, ending):
    opened(transfer, "tcp")
    export(transfer, transfer.handle(BlocksReady(8, TABLE[:2]), 0.2))
    failed, release = transfer.handle(ending, 0.3)
    assert failed.code is RefusalCode.TRANSFER_FAILED
    assert release == ReleaseSource("t")


@pytest.mark.parametrize("news", [Taken("t", 0, True), Abort("t", "acknowledged"), PeerLost(), None])
def test_tcp_blocks_in_transit_are_not_freed(transfer, news):
    opened(transfer, "tcp")
    export(transfer, transfer.handle(BlocksReady(8, TABLE[:2]), 0.2))
    (abort,) = transfer.handle(Cancelled("client left"), 0.3)
    assert abort.message == Abort("t", "client left")
    assert transfer.next_deadline() == 10.3
    assert (transfer.expire(10.3) if news is None else transfer.handle(news, 0.4)) == [ReleaseSource("t")]


def test_shared_memory_is_freed_at_once(transfer):
    opened(transfer, "shm")
    export(transfer, transfer.handle(BlocksReady(8, TABLE[:2]), 0.2))
    assert transfer.handle(Cancelled("client left"), 0.3)[-1] == ReleaseSource("t")


def test_an_illegal_event_tells_the_story(transfer):
    opened(transfer)
    transfer.handle(CommitRequested([7], 0, [], 0.0, None), 0.2)
    with pytest.raises(
        ProtocolError, match=r"BlocksReady is illegal for <SendTransfer t to decode-0 committing"
    ) as info:
        transfer.handle(BlocksReady(8, TABLE), 0.3)
    assert info.value.story == ["0.100 reserving: Reserved", "0.200 open: CommitRequested"]
