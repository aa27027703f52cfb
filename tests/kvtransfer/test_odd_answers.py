"""A sender that is answered in any order, with any numbers that the wire lets through, stays consistent."""

from hypothesis import example, given
from hypothesis import strategies as st

from kvtransfer.protocol import (
    BlocksReady,
    CommitRequested,
    Completed,
    ExportBlocks,
    Exported,
    ReleaseSource,
    TransferFailed,
    TransferLimits,
)
from kvtransfer.send import SendTransfer
from mesh.wire.messages import Codec, EngineMessage, encode
from mesh.wire.requests import Epoch, RefusalCode, RequestSpec, Sampling
from mesh.wire.transfers import Abort, Committed, Declined, Extended, KVShape, Reserve, Reserved, Taken

NUM_TOKENS = 40
TABLE = [5, 6, 7]
COUNTS = st.sampled_from([0, 1, 2, 15, 16, 17, 32, 39, 40, 41, 2**24]) | st.integers(0, 50)
SPEC = RequestSpec("r", "g", "s", list(range(NUM_TOKENS)), Sampling(8, 1), 1.0, 1.0)
RESERVE = Reserve("t", SPEC, Epoch(0, 1), NUM_TOKENS, KVShape(1, 1, 1, 16, "float32"), None, 5.0)
ODD = st.one_of(
    st.builds(Reserved, st.just("t"), COUNTS, st.sampled_from(["shm", "tcp", "", "nccl"])),
    st.builds(Extended, st.just("t"), COUNTS),
    st.builds(Declined, st.just("t"), st.sampled_from(RefusalCode), st.text(max_size=3)),
    st.builds(Taken, st.just("t"), COUNTS, st.booleans()),
    st.builds(Committed, st.just("t"), COUNTS),
    st.builds(Abort, st.just("t"), st.text(max_size=3)),
)


@given(
    st.lists(st.tuples(ODD, st.sampled_from([0.0, 0.1, 6.0])), max_size=12),
    st.lists(st.tuples(ODD, st.sampled_from([0.0, 0.1, 6.0])), max_size=12),
)
@example([], [(Reserved("t", 0, "shm"), 0.0), (Committed("t", NUM_TOKENS + 1), 0.0)])
def test_a_sender_survives_whatever_the_wire_lets_through(before, after):
    """The engine's own events come in their order, in the midst of what a peer says."""
    machine, codec = SendTransfer("peer", RESERVE, TransferLimits(), now=0.0), Codec(EngineMessage)
    ends, released, now = [], 0, 0.0

    def carry_out(effects):
        nonlocal released
        effects = list(effects)
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, ExportBlocks):
                assert set(effect.blocks) <= set(TABLE)
                generations = [0] * len(effect.blocks)
                effects += machine.handle(Exported(effect.seq, generations, [], ()), now)
            elif isinstance(effect, Completed | TransferFailed):
                ends.append(effect)
            released += isinstance(effect, ReleaseSource)

    def hear(words):
        nonlocal now
        for message, wait_s in words:
            now += wait_s
            carry_out(machine.expire(now))
            carry_out(machine.handle(codec.decode(encode(message)), now))
            machine.check_invariants()

    carry_out(machine.start())
    hear(before)
    if not ends:
        carry_out(machine.handle(BlocksReady(NUM_TOKENS, TABLE), now))
    if not ends:
        carry_out(machine.handle(CommitRequested([1], NUM_TOKENS, TABLE, 0.1, 0.1), now))
    hear(after)
    assert len(ends) <= 1
    assert released <= 1
    if ends and isinstance(ends[0], Completed):
        assert 0 <= ends[0].num_kept_tokens <= NUM_TOKENS
