from dataclasses import replace
from sys import getrefcount

import msgspec
import pytest

from kvtransfer.protocol import (
    Adopt,
    Cancelled,
    ImportBlocks,
    Imported,
    PeerLost,
    ReleaseReserved,
    Send,
    TransferLimits,
    reply_to_unknown,
)
from kvtransfer.receive import ReceiveState, ReceiveTransfer
from mesh.wire.requests import Epoch
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Reserved, Taken

TABLE = [5, 6, 7, 8, 9]
LIMITS = TransferLimits(grace_s=0.5, window=2)


@pytest.fixture
def make(make_reserve):
    def receiver(matched=0):
        reserve = make_reserve()
        return ReceiveTransfer(
            "prefill-0", reserve, blocks=TABLE, num_matched_tokens=matched, transport="tcp", limits=LIMITS, now=0.0
        )

    return receiver


def blocks(seq, first, num_tokens):
    count = -(-num_tokens // 4)
    return Blocks("t", seq, first, num_tokens, list(range(count)), [0] * count, [])


def messages(effects):
    return [effect.message for effect in effects if isinstance(effect, Send)]


def take(transfer, message, now=0.1, ok=True):
    transfer.handle(message, now, [b""])
    return transfer.handle(Imported(message.seq, ok), now)


def adopted(effects):
    (adopt,) = [effect for effect in effects if isinstance(effect, Adopt)]
    return adopt


def test_a_whole_transfer(make):
    transfer = make(matched=4)
    assert transfer.start() == [Send("prefill-0", Reserved("t", 4, "tcp"))]
    (job,) = transfer.handle(blocks(0, 1, 8), 0.1, [b"one", b"two"])
    assert isinstance(job, ImportBlocks)
    assert (job.service, job.peer, job.destinations, job.payload) == ("tiny", "prefill-0", [6, 7], [b"one", b"two"])
    assert transfer.handle(Imported(0, True), 0.2) == [Send("prefill-0", Taken("t", 0, True))]
    take(transfer, blocks(1, 3, 5))
    adopt, committed = transfer.handle(Commit("t", [7], 2, 0.5, 0.25), 0.3)
    assert committed == Send("prefill-0", Committed("t", 17))
    assert (adopt.blocks, adopt.num_kept_tokens, adopt.generated) == (TABLE, 17, [7])
    assert (adopt.epoch, adopt.age_s, adopt.first_token_age_s) == (Epoch(1, 1), 0.5, 0.25)
    assert messages(transfer.handle(Commit("t", [7], 2, 0.5, 0.25), 0.4)) == [Committed("t", 17)]
    transfer.check_invariants()


def test_what_was_adopted_answers_without_the_request(make):
    transfer = make()
    take(transfer, blocks(0, 0, 8))
    [adopt] = [one for one in transfer.handle(Commit("t", [7], 1, 0.5, None), 0.3) if isinstance(one, Adopt)]
    num_holders = getrefcount(adopt.blocks)
    transfer.forget_request()
    assert transfer.reserve.spec.prompt == []
    assert adopt.spec.prompt
    num_holders_left = getrefcount(adopt.blocks)
    assert num_holders_left == num_holders - 1
    assert messages(transfer.handle(Commit("t", [7], 1, 0.5, None), 0.4)) == [Committed("t", 8)]
    transfer.check_invariants()


def test_commit_waits_for_copies(make):
    transfer = make()
    transfer.handle(blocks(0, 0, 8), 0.1)
    assert transfer.handle(Commit("t", [7], 1, 0.5, None), 0.2) == []
    adopt = adopted(transfer.handle(Imported(0, True), 0.3))
    assert adopt.num_kept_tokens == 8
    assert adopt.age_s == pytest.approx(0.6)


@pytest.fixture
def migration(make_reserve):
    """Copies may take a tenth of the time."""
    reserve = msgspec.structs.replace(make_reserve(), is_migration=True)
    limits = replace(LIMITS, migration_share=0.1)
    transfer = ReceiveTransfer(
        "decode-1", reserve, blocks=TABLE, num_matched_tokens=0, transport="shm", limits=limits, now=0.0
    )
    yield transfer
    transfer.check_invariants()


def test_a_migration_rests_between_its_copies(migration):
    migration.handle(blocks(0, 0, 8), 0.1)
    assert migration.handle(Imported(0, True, elapsed_s=0.02), 0.12) == []
    assert migration.next_deadline() == pytest.approx(0.12 + 0.18), "nine times as long as the copy took"
    assert migration.handle(blocks(1, 2, 4), 0.2) == [], "nothing is copied meanwhile"
    taken, job = migration.expire(0.31)
    assert taken.message == Taken("t", 0, True)
    assert job.message.seq == 1


def test_rests_leave_a_long_migration_half_of_its_time(make_reserve):
    reserve = msgspec.structs.replace(make_reserve(), is_migration=True, deadline_s=1000.0)
    limits = replace(LIMITS, migration_share=0.001, migration_s=60.0)
    transfer = ReceiveTransfer(
        "decode-1", reserve, blocks=TABLE, num_matched_tokens=0, transport="shm", limits=limits, now=0.0
    )
    transfer.handle(blocks(0, 0, 4), 0.1)
    transfer.handle(Imported(0, True, elapsed_s=1.0), 1.0)
    assert transfer.next_deadline() == pytest.approx(1.0 + 30 / len(TABLE)), "one of its blocks is copied"


def test_the_end_of_a_migration_does_not_wait(migration):
    migration.handle(blocks(0, 0, 8), 0.1)
    migration.handle(Imported(0, True, elapsed_s=0.02), 0.12)
    migration.handle(blocks(1, 2, 4), 0.13)
    taken, job = migration.handle(Commit("t", [7], 2, 0.5, 0.25), 0.14)
    assert (taken.message.seq, job.message.seq) == (0, 1)
    taken, adopt, _ = migration.handle(Imported(1, True, elapsed_s=0.02), 0.15)
    assert (taken.message.seq, adopt.num_kept_tokens) == (1, 12)


def test_a_rest_ends_well_before_the_reservation(migration):
    migration.handle(blocks(0, 0, 8), 0.0)
    migration.handle(Imported(0, True, elapsed_s=4.0), 4.0)
    assert migration.next_deadline() == 4.0 + 10.0 / 4
    assert messages(migration.expire(6.5)) == [Taken("t", 0, True)]
    assert [type(message) for message in messages(migration.expire(10.0))] == [Abort]


def test_blocks_that_are_not_what_was_sent_are_told_at_once(migration):
    migration.handle(blocks(0, 0, 8), 0.1)
    assert messages(migration.handle(Imported(0, False, elapsed_s=0.02), 0.12)) == [Taken("t", 0, False)]


def test_a_hand_over_does_not_rest(make):
    transfer = make()
    transfer.handle(blocks(0, 0, 8), 0.1)
    assert messages(transfer.handle(Imported(0, True, elapsed_s=0.02), 0.12)) == [Taken("t", 0, True)]


def test_copies_of_one_transfer_run_one_at_a_time(make):
    transfer = make()
    transfer.handle(blocks(0, 0, 8), 0.1)
    assert transfer.handle(blocks(1, 2, 8), 0.1) == []
    taken, job = transfer.handle(Imported(0, True), 0.2)
    assert (taken.message.seq, job.message.seq) == (0, 1)


@pytest.mark.parametrize("lost", ["corrupt", "missing"])
def test_the_first_flaw_caps_what_is_kept(make, lost):
    transfer = make()
    take(transfer, blocks(0, 0, 4))
    if lost == "corrupt":
        take(transfer, blocks(1, 1, 4), ok=False)
    take(transfer, blocks(2, 2, 4))
    effects = transfer.handle(Commit("t", [7], 3, 0.0, None), 0.2)
    if lost == "missing":
        assert effects == []
        assert transfer.next_deadline() == pytest.approx(0.7)
        effects = transfer.expire(0.7)
    assert adopted(effects).num_kept_tokens == 4


def test_blocks_after_commit_still_count_within_the_grace(make):
    transfer = make()
    transfer.handle(Commit("t", [7], 1, 0.0, None), 0.2)
    assert adopted(take(transfer, blocks(0, 0, 8), now=0.3)).num_kept_tokens == 8


def test_a_running_copy_outlives_the_grace(make):
    transfer = make()
    transfer.handle(blocks(0, 0, 8), 0.1)
    transfer.handle(Commit("t", [7], 2, 0.0, None), 0.2)
    assert transfer.expire(5.0) == []
    assert transfer.next_deadline() is None
    assert adopted(transfer.handle(Imported(0, True), 5.1)).num_kept_tokens == 8


@pytest.mark.parametrize(
    "message",
    [
        blocks(0, 0, 4),  # would overwrite a shared block
        blocks(0, 4, 8),  # past the end
        blocks(-1, 1, 4),
        Blocks("t", 0, 1, 9, [0, 1], [0, 0], []),
        Blocks("t", 0, 1, 4, [0, 1], [0, 0], []),
        Blocks("t", 0, 1, 0, [], [], []),
    ],
)
def test_blocks_that_do_not_fit_are_not_taken(make, message):
    transfer = make(matched=4)
    assert messages(transfer.handle(message, 0.1)) == [Taken("t", message.seq, False)]
    assert transfer.num_kept_tokens == 4


def test_a_sender_that_ignores_the_window_is_not_buffered(make):
    transfer = make()
    for seq in range(3):
        effects = transfer.handle(blocks(seq, seq, 4), 0.1)
    assert messages(effects) == [Taken("t", 2, False)]


def test_duplicates_are_ignored_and_counted(make):
    transfer = make()
    take(transfer, blocks(0, 0, 4))
    assert transfer.handle(blocks(0, 0, 4), 0.2) == []
    assert transfer.ignored == {"Blocks": 1}


def test_every_message_prolongs_the_reservation(make):
    transfer = make()
    assert transfer.next_deadline() == 10.0
    take(transfer, blocks(0, 0, 4), now=8.0)
    assert transfer.expire(17.9) == []
    abort, release = transfer.expire(18.0)
    assert isinstance(abort.message, Abort)
    assert release == ReleaseReserved("t", TABLE)
    assert transfer.is_over


def test_a_late_commit_is_refused(make):
    transfer = make()
    effects = transfer.handle(Commit("t", [7], 0, 0.0, None), 10.0)
    assert [type(effect) for effect in effects] == [Send, ReleaseReserved, Send]
    assert isinstance(messages(effects)[-1], Abort)
    assert transfer.state is ReceiveState.ABORTED


@pytest.mark.parametrize("ending", [Abort("t", "no"), Cancelled("client left"), PeerLost(), None])
def test_blocks_are_not_freed_under_a_running_copy(make, ending):
    transfer = make()
    transfer.handle(blocks(0, 0, 4), 0.1)
    transfer.handle(blocks(1, 1, 4), 0.1)
    effects = transfer.expire(20.0) if ending is None else transfer.handle(ending, 0.2)
    assert not any(isinstance(effect, ReleaseReserved | ImportBlocks) for effect in effects)
    transfer.check_invariants()
    assert transfer.handle(Imported(0, True), 20.1) == [ReleaseReserved("t", TABLE)]
    transfer.check_invariants()


def test_a_sender_that_dies_after_commit_has_handed_over(make):
    transfer = make()
    transfer.handle(Commit("t", [7], 1, 0.0, None), 0.2)
    assert adopted(transfer.handle(PeerLost(), 0.3)).num_kept_tokens == 0


def test_abort_after_adoption_is_ignored(make):
    transfer = make()
    transfer.handle(Commit("t", [7], 0, 0.0, None), 0.2)
    assert transfer.handle(Abort("t", "too late"), 0.3) == []
    assert transfer.state is ReceiveState.COMMITTED


def test_unknown_transfers_are_answered_where_the_peer_waits():
    assert isinstance(reply_to_unknown(Commit("t", [], 0, 0.0, None)), Abort)
    assert isinstance(reply_to_unknown(Reserved("t", 0, "shm")), Abort)
    assert reply_to_unknown(Abort("t", "")) is None
    assert reply_to_unknown(Taken("t", 0, True)) is None
