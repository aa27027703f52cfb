"""Each defence of the product is needed: without it, a run breaks something that must hold.

Not in the table is what no run shows, because another defence stands behind it or because runs do not follow it:

- Silence of a running request for `DispatchLimits.stall_s`: `Probing` finds out long before.
- `Moved`, and the `Cancel` that answers `Accepted` of a stranger: tokens and probes tell the same, a moment later.
- `Abort`, and the answers to unknown transfers and to a Commit sent twice: deadlines and leases end the same.
- The refusal of a late hand-over (`EngineCore.adopt`): older attempts are fenced and cancelled by their gateway.
- The epoch of `Cancel`: what a late one ends is missed by `Probing`, and goes on.
- Pinned blocks, and blocks that wait for the running step: runs follow no content; generations and
  `tests/kvtransfer` do.
- Numbers of Blocks messages: a block that is copied twice is the same block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from kvtransfer.machine import ProtocolError
from kvtransfer.memory import KVMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import SHM, ExportBlocks, ImportBlocks
from kvtransfer.transports import SharedMemoryTransport
from mesh.wire.transfers import Blocks, KVShape
from tests.defences import switches
from tests.defences.attacks import (
    Runs,
    busy,
    crowded,
    deaf,
    doubled,
    long_answers,
    lossy,
    orphaned,
    queued,
    roomy,
    speechless,
    unheard,
    unsupervised,
)
from tests.defences.recorded import a_move_after_the_end
from tests.kvtransfer.link import Link
from tests.kvtransfer.test_protocol import test_blocks_read_after_the_sender_gave_up_are_still_what_was_promised

SHAPE = KVShape(1, 1, 4, 4, "float32")


def a_reused_block() -> None:
    """Its owner gives a block new content between the export and the copy."""
    source, target = KVMemory.alone(SHAPE, 2), KVMemory.alone(SHAPE, 2)
    source.array[:] = 1
    exported = SharedMemoryTransport(source, PeerMemories(), checksum=False).export_blocks(
        ExportBlocks("t", "s", SHM, 0, [0], "peer")
    )
    source.reuse(0)
    source[0] = 2
    message = Blocks("t", 0, 0, 4, [0], exported.generations, [])
    job = ImportBlocks("t", "s", SHM, "peer", source.ref("here"), message, (), [1])
    imported = SharedMemoryTransport(target, PeerMemories(), checksum=False).import_blocks(job)
    source.close()
    target.close()
    assert not imported.ok or np.all(target[1] == 1), "took what was never sent"


def a_corrupt_copy() -> None:
    """One of two copies goes wrong; what is adopted must be what was computed."""
    link = Link()
    link.begin(SHM, 16, 0, "commit requested")
    link.go_on(["export", "receiver"])
    link.finish_import(corrupt=True)
    link.go_on(["export", "receiver", "import", "receiver", "import"] * 3)
    assert link.adoption is not None, "the request is lost"


def a_cancel_during_a_copy() -> None:
    """What was reserved is freed when nothing writes to it any more."""
    link = Link()
    link.begin(SHM, 16, 0, "commit requested")
    link.go_on(["export", "receiver"])
    assert link.importing is not None
    link.cancel(at_sender=True)
    link.go_on(["receiver"] * 4)
    link.finish_import(corrupt=False)


@dataclass(frozen=True)
class Defence:
    switch_off: Callable[[pytest.MonkeyPatch], None]
    attack: Runs | Callable[[], None]

    @property
    def name(self) -> str:
        return self.switch_off.__name__


DEFENCES = [
    Defence(switches.epoch_fence, Runs(seeds=(9, 11))),
    Defence(switches.offsets, Runs(seeds=(0, 1))),
    Defence(switches.holding_behind_gaps, Runs(seeds=(2, 3))),
    Defence(switches.end_of_gaps, Runs(("loss",), change=long_answers, gap_s=3.0, seeds=(11, 16))),
    Defence(switches.asking_for_lost_tokens, Runs((), change=speechless, gap_s=1.3, seeds=(0, 1))),
    Defence(switches.noticing_unanswered_submits, Runs(("loss",), seeds=(16, 35))),
    Defence(switches.probing, Runs(("loss",), seeds=(35, 64))),
    Defence(switches.knowing_that_requests_are_held, Runs((), change=queued, seeds=(0, 1))),
    Defence(switches.backing_off, Runs(("partition", "slow"), seeds=(1, 6))),
    Defence(switches.stopping_strangers, Runs(("leave",), change=deaf, gone_s=1.5, seeds=(0, 1))),
    Defence(switches.stopping_what_moved, a_move_after_the_end),
    Defence(switches.cancelling, Runs(("leave",), change=crowded, gone_s=1.0, seeds=(2, 3))),
    Defence(switches.bound_of_requests, Runs(seeds=(2, 17))),
    Defence(switches.noticing_restarts, Runs(("kill",), change=roomy, gap_s=4.0, seeds=(8, 22))),
    Defence(
        switches.ignoring_old_incarnations,
        Runs(("kill", "delay", "reorder"), change=doubled, gap_s=3.0, seeds=(22, 31)),
    ),
    Defence(switches.leases, Runs(("death",), change=unsupervised, gap_s=4.0, seeds=(4, 14))),
    Defence(switches.hearing_gateways, Runs((), change=orphaned, gone_s=2.0, seeds=(35, 38))),
    Defence(
        switches.dropping_requests_of_dead_gateways, Runs(("gateway",), change=long_answers, gone_s=2.0, seeds=(13, 21))
    ),
    Defence(switches.knowing_submits, Runs(("move", "delay", "kill"), change=doubled)),
    Defence(switches.remembering_what_ended, Runs(("move",), change=doubled, seeds=(161,))),
    Defence(switches.ending_earlier_owners, Runs(("duplicate", "hang", "delay", "move"), seeds=(345,))),
    Defence(switches.bound_of_waiting, Runs((), change=busy, seeds=(0, 1))),
    Defence(switches.deadline_of_reservations, Runs(("move",), change=lossy, seeds=(1, 4))),
    Defence(switches.deadlines_of_senders, Runs(("loss",), seeds=(132, 145))),
    Defence(switches.giving_up_unanswered_reserves, Runs(("loss",), seeds=(43,))),
    Defence(switches.giving_up_unanswered_commits, Runs(("move",), change=lossy, seeds=(1, 4))),
    Defence(switches.unknown_owners, Runs(("move", "hang", "partition"), change=roomy, seeds=(17, 85))),
    Defence(switches.knowing_reserves, Runs(("duplicate", "move"), seeds=(10, 24))),
    Defence(switches.waiting_until_nothing_is_left, Runs(("shed",), seeds=(0, 2))),
    Defence(switches.repeating_orders, Runs((), change=unheard, seeds=(0, 1))),
    Defence(switches.waiting_for_running_copies, a_cancel_during_a_copy),
    Defence(switches.keeping_only_what_was_copied, a_corrupt_copy),
    Defence(switches.lingering, test_blocks_read_after_the_sender_gave_up_are_still_what_was_promised),
    Defence(switches.generations, a_reused_block),
]


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.name)
def test_without_it_something_breaks(defence: Defence, monkeypatch: pytest.MonkeyPatch):
    defence.switch_off(monkeypatch)
    with pytest.raises((AssertionError, ProtocolError)):
        defence.attack()


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.name)
def test_with_it_all_holds(defence: Defence):
    if isinstance(defence.attack, Runs):
        defence.attack.known()
    else:
        defence.attack()
