"""Both machines over a link that loses, reorders, duplicates and delays, with memory whose content is followed."""

import pytest
from hypothesis import settings

from kvtransfer.protocol import (
    READS_LATER,
    TCP,
    BlocksReady,
    CommitRequested,
    Completed,
    Exported,
    TransferFailed,
)
from kvtransfer.receive import ReceiveState
from mesh.wire.transfers import Abort, Blocks, Commit
from tests.kvtransfer.link import LIMITS, Link, take_all

Link.TestCase.settings = settings(stateful_step_count=50)


TestLink = Link.TestCase


@pytest.mark.parametrize("transport", READS_LATER)
@pytest.mark.parametrize("num_tokens", [1, 4, 17, 40])
@pytest.mark.parametrize("num_matched", [0, 2])
def test_a_good_link_keeps_every_token(transport, num_tokens, num_matched):
    link = Link()
    link.begin(transport, num_tokens, num_matched)

    def run():
        while link.exports or link.to_receiver or link.to_sender or link.importing:
            for packet in take_all(link.to_receiver):
                link.tell_receiver(link.transmit(packet))
            for packet in take_all(link.to_sender):
                link.tell_sender(packet.message)
            while link.exports:
                job = link.exports.pop(0)
                link.tell_sender(Exported(job.seq, [0] * len(job.blocks), [], ()))
            if link.importing:
                link.finish_import(corrupt=False)

    run()
    for num_computed in range(0, num_tokens, 7):
        link.tell_sender(BlocksReady(num_computed, link.compute(num_computed)))
        run()
    link.tell_sender(CommitRequested([7], num_tokens, link.compute(num_tokens), 0.0, None))
    run()
    assert link.adoption.num_kept_tokens == num_tokens
    assert link.outcomes == [Completed("t", num_tokens)]
    assert link.receiver.state is ReceiveState.COMMITTED


@pytest.mark.parametrize("transport", READS_LATER)
@pytest.mark.parametrize("num_spare_blocks", [0, 3, 10])
def test_a_migration_grows_as_long_as_there_is_room(transport, num_spare_blocks):
    link = Link()
    link.begin(transport, 8, 0, num_later=24, num_spare_blocks=num_spare_blocks)
    turns = ["receiver", "sender", "export", "import"] * 4
    for _ in range(4):
        link.go_on(turns)
        link.pass_time(0.2, call_in_time=True)
    while link.num_computed < 30 and link.is_sending:
        link.tell_sender(BlocksReady(link.num_computed + 1, link.compute(link.num_computed + 1)))
        link.go_on(turns)
        link.pass_time(0.2, call_in_time=True)
    if num_spare_blocks < 10:
        assert [type(outcome) for outcome in link.outcomes] == [TransferFailed]
        assert link.num_targets_freed == 1
    else:
        link.request_commit()
        assert sum(link.sender._unacknowledged.values()) <= LIMITS.last_stage_blocks
        for _ in range(4):
            link.go_on(turns)
        assert link.outcomes == [Completed("t", 30)]
        assert link.adoption.num_kept_tokens == 30


def test_blocks_read_after_the_sender_gave_up_are_still_what_was_promised():
    link = Link()
    link.begin(TCP, 8, 0, "commit requested")
    link.finish_export(0)
    link.cancel(at_sender=True)
    assert [type(packet.message) for packet in link.to_receiver] == [Blocks, Commit, Abort]
    link.go_on(["receiver", "import", "receiver"])
    assert link.adoption.num_kept_tokens == 8
    assert link.num_sources_freed == 0
    link.go_on(["sender"])
    assert link.num_sources_freed == 1
