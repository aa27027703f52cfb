"""A link between the two machines of a transfer that loses, reorders, duplicates and delays."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvtransfer.protocol import (
    SHM,
    TCP,
    Adopt,
    BlocksReady,
    Cancelled,
    CommitRequested,
    Completed,
    ExportBlocks,
    Exported,
    Grown,
    GrowReserved,
    ImportBlocks,
    Imported,
    NotGrown,
    PeerLost,
    ReleaseReserved,
    ReleaseSource,
    Send,
    TransferFailed,
    TransferLimits,
)
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendState, SendTransfer
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.transfers import Blocks, KVShape, Reserve

SIZE = 4


DEADLINE_S = 10.0


MAX_DELAY_S = DEADLINE_S / 2  # of the link; what is older is lost


LIMITS = TransferLimits(reply_s=2.0, grace_s=1.0, window=2, message_bytes=2 * 32, migration_share=0.5)


COPY_S = 0.15


RUBBISH = (-1, 0)


@dataclass
class Pool:
    """What lies in each physical block: which logical block, and KV of how many of its tokens."""

    content: dict[int, tuple[int, int]] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)

    def reuse(self, blocks):
        for block in blocks:
            self.generations[block] = self.generations.get(block, 0) + 1
            self.content[block] = RUBBISH


@dataclass
class Packet:
    """A message under way. ``payload`` is read from the pool when the packet is, not when it was sent."""

    sent_at: float
    message: object
    payload: list[tuple[int, int]] | None = None


class Link(RuleBasedStateMachine):
    @initialize(
        transport=st.sampled_from([SHM, TCP]),
        num_tokens=st.integers(1, 40),
        num_matched=st.integers(0, 2),
        head_start=st.sampled_from(["none", "reserved", "half computed", "commit requested"]),
        num_later=st.sampled_from([0, 0, 24]),
        num_spare_blocks=st.integers(0, 10),
    )
    def begin(self, transport, num_tokens, num_matched, head_start="none", num_later=0, num_spare_blocks=0):
        """``num_later`` tokens come while the request migrates; the receiver has some blocks for them."""
        self.now, self.transport, self.num_tokens = 0.0, transport, num_tokens + num_later
        self.spare = list(range(300, 300 + num_spare_blocks))
        num_blocks = -(-num_tokens // SIZE)
        self.table = list(range(100, 100 + -(-self.num_tokens // SIZE)))
        reserved = list(range(200, 200 + num_blocks))
        matched = min(num_matched, num_tokens // SIZE)
        self.source, self.target = Pool(), Pool()
        self.target.content = {reserved[index]: (index, SIZE) for index in range(matched)}
        self.shared = dict(self.target.content)
        spec = RequestSpec("r", "g", "s", list(range(num_tokens)), Sampling(4, 1), 1.0, 1.0)
        shape = KVShape(1, 1, 1, SIZE, "float32")
        self.reserve = Reserve("t", spec, Epoch(1, 1), num_tokens, shape, None, DEADLINE_S, num_later > 0)
        self.sender: SendTransfer | None = SendTransfer("b", self.reserve, LIMITS, self.now)
        self.receiver: ReceiveTransfer | None = None
        self.make_receiver = lambda: ReceiveTransfer(
            "a", self.reserve, blocks=reserved, num_matched_tokens=matched * SIZE, transport=transport, limits=LIMITS,
            now=self.now,
        )  # fmt: skip
        self.to_sender: list[Packet] = []
        self.to_receiver: list[Packet] = []
        self.exports: list[ExportBlocks] = []
        self.importing: tuple[ImportBlocks, list[tuple[int, int]]] | None = None
        self.num_computed = 0
        self.outcomes: list[object] = []  # of the sender
        self.adoption: Adopt | None = None
        self.num_sources_freed = self.num_targets_freed = 0
        self.was_cancelled = self.sender_died = False
        self.carry_out(self.sender.start())
        if head_start != "none":
            self.go_on(["receiver", "sender"])
        if head_start == "half computed" and num_tokens > 1:
            self.compute_chunk(num_tokens // 2)
        if head_start == "commit requested" and self.may_commit:
            self.request_commit()

    # --- the two engines ----------------------------------------------------------------------------------------------

    def carry_out(self, effects):
        for effect in effects:
            match effect:
                case Send(to="b"):
                    self.to_receiver.append(Packet(self.now, effect.message))
                case Send():
                    self.to_sender.append(Packet(self.now, effect.message))
                case ExportBlocks():
                    self.exports.append(effect)
                case ReleaseSource():
                    self.num_sources_freed += 1
                    self.source.reuse(self.table)
                case Completed() | TransferFailed():
                    self.outcomes.append(effect)
                case ImportBlocks():
                    self.start_copy(effect)
                case GrowReserved(num_blocks=count):
                    self.grow(count)
                case ReleaseReserved(blocks=blocks):
                    assert self.importing is None, "freed under a running copy"
                    self.num_targets_freed += 1
                    self.target.reuse(blocks)
                case Adopt():
                    assert self.importing is None, "adopted under a running copy"
                    self.adopt(effect)

    def grow(self, count):
        new, self.spare = (self.spare[:count], self.spare[count:]) if count <= len(self.spare) else (None, self.spare)
        event = NotGrown("full") if new is None else Grown(new)
        self.carry_out(self.receiver.handle(event, self.now))

    def start_copy(self, job):
        assert self.importing is None
        in_place = [self.source.content.get(block, RUBBISH) for block in job.message.source_blocks]
        self.importing = job, in_place if self.transport == SHM else list(job.payload)
        for block in job.destinations:
            self.target.content[block] = RUBBISH

    def adopt(self, effect):
        assert self.adoption is None, "adopted twice"
        self.adoption = effect
        for index in range(-(-effect.num_kept_tokens // SIZE)):
            logical, num_tokens = self.target.content[effect.blocks[index]]
            assert logical == index, "adopted a block with another one's content"
            assert num_tokens >= min(SIZE, effect.num_kept_tokens - index * SIZE), "adopted tokens that are not there"

    def tell_sender(self, event):
        if self.sender is not None:
            self.carry_out(self.sender.handle(event, self.now))

    def tell_receiver(self, packet):
        if isinstance(packet.message, Reserve) and self.receiver is None:
            self.receiver = self.make_receiver()
            self.carry_out(self.receiver.start())
        elif self.receiver is not None:
            self.carry_out(self.receiver.handle(packet.message, self.now, packet.payload or ()))

    # --- the link -----------------------------------------------------------------------------------------------------

    def transmit(self, packet):
        """Read the payload from the sender's pool, as its network thread does at some time after the send."""
        if isinstance(packet.message, Blocks) and packet.payload is None:
            packet.payload = [self.source.content.get(block, RUBBISH) for block in packet.message.source_blocks]
        return packet

    @rule(turns=st.lists(st.sampled_from(["receiver", "sender", "export", "import"]), min_size=4, max_size=16))
    def go_on(self, turns):
        """Some of the work that is pending, in the order in which it came up."""
        for turn in turns:
            if turn == "receiver" and self.to_receiver:
                self.tell_receiver(self.transmit(self.to_receiver.pop(0)))
            elif turn == "sender" and self.to_sender:
                self.tell_sender(self.to_sender.pop(0).message)
            elif turn == "export" and self.exports:
                self.finish_export(0)
            elif turn == "import" and self.importing is not None:
                self.finish_import(corrupt=False)

    @precondition(lambda self: self.to_receiver)
    @rule(data=st.data(), again=st.booleans())
    def deliver_any_to_receiver(self, data, again):
        index = data.draw(st.integers(0, len(self.to_receiver) - 1))
        packet = self.transmit(self.to_receiver[index])
        if not again:
            del self.to_receiver[index]
        self.tell_receiver(packet)

    @precondition(lambda self: self.to_sender)
    @rule(data=st.data(), again=st.booleans())
    def deliver_any_to_sender(self, data, again):
        index = data.draw(st.integers(0, len(self.to_sender) - 1))
        message = self.to_sender[index].message
        if not again:
            del self.to_sender[index]
        self.tell_sender(message)

    @precondition(lambda self: self.to_receiver or self.to_sender)
    @rule(data=st.data())
    def lose(self, data):
        queue = data.draw(st.sampled_from([queue for queue in (self.to_receiver, self.to_sender) if queue]))
        del queue[data.draw(st.integers(0, len(queue) - 1))]

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6, 2.0, 4.0]), call_in_time=st.booleans())
    def pass_time(self, seconds, call_in_time):
        self.now += seconds
        for queue in (self.to_receiver, self.to_sender):
            queue[:] = [packet for packet in queue if packet.sent_at + MAX_DELAY_S > self.now]
        if call_in_time:
            self.expire()

    def expire(self):
        for machine in (self.sender, self.receiver):
            if machine is not None:
                self.carry_out(machine.expire(self.now))

    # --- what happens in the engines ----------------------------------------------------------------------------------

    def compute(self, num_tokens):
        self.num_computed = num_tokens
        for index in range(-(-num_tokens // SIZE)):
            self.source.content[self.table[index]] = index, min(SIZE, num_tokens - index * SIZE)
        return self.table[: -(-num_tokens // SIZE)]

    @property
    def may_end_early(self):
        """Not before something is under way, or most runs would end before they begin."""
        return self.importing is not None or self.adoption is not None or len(self.to_receiver) > 1

    @property
    def is_sending(self):
        return self.sender is not None and self.sender.state in (SendState.RESERVING, SendState.OPEN)

    @precondition(lambda self: self.is_sending and not self.sender._commit and self.num_computed < self.num_tokens)
    @rule(num_more=st.integers(1, 12))
    def compute_chunk(self, num_more):
        num_tokens = min(self.num_tokens, self.num_computed + num_more)
        table = self.compute(num_tokens)
        self.tell_sender(BlocksReady(num_tokens, table))

    @property
    def may_commit(self):
        return self.is_sending and (not self.reserve.is_migration or self.sender.is_nearly_done)

    @precondition(lambda self: self.may_commit and not self.sender._commit)
    @rule()
    def request_commit(self):
        if self.reserve.is_migration:
            assert self.num_computed < self.sender._num_reserved, "no room for the next token"
        else:
            self.num_computed = self.num_tokens
        table = self.compute(self.num_computed)
        self.tell_sender(CommitRequested([7], self.num_computed, table, 0.0, None))

    @precondition(lambda self: len(self.exports) > 1)
    @rule()
    def finish_last_export(self):
        self.finish_export(-1)

    def finish_export(self, index):
        job = self.exports.pop(index)
        generations = [self.source.generations.get(block, 0) for block in job.blocks]
        self.tell_sender(Exported(job.seq, generations, [], ()))

    @precondition(lambda self: self.importing is not None)
    @rule()
    def corrupt_import(self):
        self.finish_import(corrupt=True)

    def finish_import(self, corrupt):
        (job, content), self.importing = self.importing, None
        current = [self.source.generations.get(block, 0) for block in job.message.source_blocks]
        ok = not corrupt and (self.transport == TCP or current == job.message.generations)
        for block, found in zip(job.destinations, content, strict=True):
            self.target.content[block] = RUBBISH if corrupt else found
        self.carry_out(self.receiver.handle(Imported(job.message.seq, ok, COPY_S), self.now))

    @precondition(lambda self: self.may_end_early)
    @rule(at_sender=st.booleans())
    def cancel(self, at_sender):
        if at_sender:
            self.was_cancelled = True
            self.tell_sender(Cancelled("cancelled"))
        elif self.receiver is not None:
            self.carry_out(self.receiver.handle(Cancelled("cancelled"), self.now))

    @precondition(lambda self: self.may_end_early and self.sender is not None and self.receiver is not None)
    @rule(in_transit_is_lost=st.booleans())
    def kill_sender(self, in_transit_is_lost):
        self.sender_died, self.sender = True, None
        for packet in self.to_receiver:
            self.transmit(packet)
        if in_transit_is_lost:
            self.to_receiver.clear()

    @precondition(lambda self: self.sender_died)
    @rule()
    def notice_the_death(self):
        self.carry_out(self.receiver.handle(PeerLost(), self.now))

    @precondition(lambda self: self.may_end_early and self.sender is not None)
    @rule()
    def declare_the_receiver_dead(self):
        """Rightly or not: to membership a peer that is cut off is a dead one. What is queued for it is dropped."""
        self.to_receiver.clear()
        self.tell_sender(PeerLost())

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def machines_are_consistent(self):
        for machine in (self.sender, self.receiver):
            if machine is not None:
                machine.check_invariants()

    @invariant()
    def shared_blocks_are_never_written(self):
        if self.num_targets_freed == 0:
            assert {block: self.target.content[block] for block in self.shared} == self.shared

    @invariant()
    def each_ending_comes_once(self):
        assert self.num_sources_freed <= 1
        assert self.num_targets_freed + (self.adoption is not None) <= 1
        assert len(self.outcomes) <= 1

    @invariant()
    def there_is_one_owner_unless_the_gateway_is_told(self):
        if self.adoption is not None and self.sender is not None:
            told = any(isinstance(outcome, TransferFailed) for outcome in self.outcomes) or self.was_cancelled
            assert told or self.sender.state in (SendState.COMMITTING, SendState.DONE)
        if any(isinstance(outcome, Completed) for outcome in self.outcomes):
            assert self.adoption is not None

    def teardown(self):
        """However it went, silence ends it on both sides."""
        if not hasattr(self, "sender"):
            return
        for _ in range(5):
            while self.importing is not None:  # a paced one may begin as the deadline ends the transfer
                self.finish_import(corrupt=False)
            self.now += DEADLINE_S
            self.expire()
        if self.receiver is not None:
            assert self.receiver.is_over, self.receiver
            assert self.num_targets_freed + (self.adoption is not None) == 1
        if self.sender is not None and self.sender.state not in (SendState.OPEN, SendState.FLUSHING):
            assert self.sender.is_over, self.sender
        self.tell_sender(Cancelled("the end"))
        self.now += DEADLINE_S
        self.expire()
        if self.sender is not None:
            assert self.sender.is_over, self.sender
            assert self.num_sources_freed == 1
        self.machines_are_consistent()


def take_all(queue):
    packets, queue[:] = list(queue), []
    return packets
