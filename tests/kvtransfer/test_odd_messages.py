"""A receiver that is sent messages in any order, with any numbers that the wire lets through, stays consistent."""

from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.protocol import Grown, GrowReserved, ImportBlocks, Imported, NotGrown, ReleaseReserved, TransferLimits
from kvtransfer.receive import ReceiveTransfer
from mesh.wire.messages import Codec, EngineMessage, encode
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.transfers import Abort, Blocks, Commit, Extend, KVShape, Reserve

MOST_BLOCKS = 64
COUNTS = st.sampled_from([0, 1, 2, 3, 16, 17, 2**24]) | st.integers(0, 40)
HUGE = COUNTS | st.sampled_from([2**31, 2**53])
SPEC = RequestSpec("r", "g", "s", list(range(40)), Sampling(8, 1), 1.0, 1.0)
RESERVE = Reserve("t", SPEC, Epoch(0, 1), 40, KVShape(1, 1, 1, 16, "float32"), None, 5.0, is_migration=True)
ODD = st.one_of(
    st.builds(
        Blocks, st.just("t"), HUGE, HUGE, COUNTS, *[st.lists(HUGE, max_size=5)] * 2, st.lists(COUNTS, max_size=5)
    ),
    st.builds(Extend, st.just("t"), COUNTS),
    st.builds(Commit, st.just("t"), st.lists(COUNTS, max_size=3), HUGE, st.floats(0, 1e12), st.none()),
    st.builds(Abort, st.just("t"), st.text(max_size=3)),
    st.just(RESERVE),
)


@given(st.lists(st.tuples(ODD, st.sampled_from([0.0, 0.1, 6.0]), st.booleans()), max_size=30))
def test_a_receiver_survives_whatever_the_wire_lets_through(words):
    machine = ReceiveTransfer(
        "peer", RESERVE, blocks=[0, 1, 2], num_matched_tokens=16, transport="tcp", limits=TransferLimits(), now=0.0
    )
    codec, now, num_blocks, ended = Codec(EngineMessage), 0.0, 3, 0
    effects = machine.start()
    for message, wait_s, goes_well in words:
        now += wait_s
        effects = [*machine.expire(now), *machine.handle(codec.decode(encode(message)), now, [b""])]
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, ImportBlocks):
                assert set(effect.destinations) <= set(range(1, num_blocks)), "the first is shared"
                assert len(effect.destinations) == len(effect.message.source_blocks)
                effects += machine.handle(Imported(effect.message.seq, ok=goes_well, elapsed_s=0.0), now)
            elif isinstance(effect, GrowReserved):
                can_grow = num_blocks + effect.num_blocks <= MOST_BLOCKS
                more = list(range(num_blocks, num_blocks + effect.num_blocks)) if can_grow else []
                num_blocks += len(more)
                effects += machine.handle(Grown(more) if can_grow else NotGrown("no room"), now)
            ended += isinstance(effect, ReleaseReserved)
        machine.check_invariants()
    assert ended <= 1
