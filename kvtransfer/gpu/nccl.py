"""The NCCL channels of an engine: made on demand, watched, at most so many, made anew after a peer died.

A channel is proposed by its sender: the unique id travels in the first payload frame of `Blocks` messages, whose bytes
follow in the same message until the channel is ready. So nothing waits for a connection, and one that cannot be had
costs speed only. A channel that fails is not proposed again for a while.
"""

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic, sleep

from kvtransfer.gpu.device import Device, DeviceError, Event, Region
from kvtransfer.gpu.nccl_channel import Channel, ChannelState
from kvtransfer.gpu.tickets import Announcement, GapError, Inbox, Outbox

SENDER, RECEIVER = 0, 1  # ranks
PAST_LIVES = 256  # of peers, that are remembered


@dataclass(frozen=True, slots=True)
class NcclLimits:
    """Times in seconds. ``max_channels``: in each direction; ``slot_bytes``: of the largest `Blocks` message."""

    slot_bytes: int
    max_channels: int = 16
    slots_out: int = 4
    slots_in: int = 5
    connect_s: float = 20.0
    receive_s: float = 2.0  # for bytes that the sender said it has queued
    settle_s: float = 10.0  # for a send to be received
    retry_s: float = 5.0
    watch_s: float = 0.1


@dataclass
class NcclOutgoing:
    """The channel to a peer. ``lock`` serialises who fills slots."""

    channel: Channel
    outbox: Outbox
    connect_by: float
    events: dict[int, Event] = field(default_factory=dict)  # by ticket
    lock: Lock = field(default_factory=Lock)

    def settle(self) -> None:
        """Free the slots of sends that were received. Holding the lock."""
        for ticket in [ticket for ticket in self.outbox.tickets if self.events[ticket].is_done()]:
            self.outbox.finish(ticket)
            del self.events[ticket]

    def is_late(self, now: float) -> bool:
        if self.channel.state is ChannelState.CONNECTING:
            return now >= self.connect_by
        if self.lock.acquire(blocking=False):
            try:
                self.settle()
            except DeviceError:
                return True
            finally:
                self.lock.release()
        return self.outbox.is_overdue(now)


@dataclass
class NcclIncoming:
    """The channel from a peer. ``lock`` serialises who receives."""

    channel: Channel
    name: tuple[str, int]  # the sender's life, and the channel's number in it
    inbox: Inbox
    connect_by: float
    lock: Lock = field(default_factory=Lock)

    def is_late(self, now: float) -> bool:
        return self.channel.state is ChannelState.CONNECTING and now >= self.connect_by


class NcclLinks:
    """All channels of one engine. Any thread may call; nothing waits but `receive`, and that until a deadline."""

    def __init__(self, device: Device, limits: NcclLimits, clock: Callable[[], float] = monotonic) -> None:
        self._device = device
        self._limits = limits
        self._clock = clock
        self._lock = Lock()
        self._outgoing: OrderedDict[str, NcclOutgoing] = OrderedDict()  # by peer, the least recently used first
        self._incoming: OrderedDict[str, NcclIncoming] = OrderedDict()  # likewise
        self._life = secrets.token_hex(8)
        self._num_proposed = 0
        self._newest: dict[str, tuple[str, int]] = {}  # of the channels that each peer announced
        self._past_lives: deque[str] = deque(maxlen=PAST_LIVES)
        self._retry_at: dict[str, float] = {}  # by peer
        self._watch: Thread | None = None

    def __repr__(self) -> str:
        return f"<NcclLinks {[link.channel for link in self._all()]}>"

    def _all(self) -> list[NcclOutgoing | NcclIncoming]:
        return [*self._outgoing.values(), *self._incoming.values()]

    def forget(self, peer: str) -> None:
        """Forget a peer that died. Its next incarnation is another peer."""
        with self._lock:
            self._drop([link for link in self._all() if link.channel.peer == peer], f"{peer} died")
            self._retry_at.pop(peer, None)

    def close(self) -> None:
        with self._lock:
            self._drop(self._all(), "the engine ends")

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, peer: str, num_bytes: int, fill: Callable[[Region], None]) -> Announcement | None:
        """Send what ``fill`` writes to a region, and has finished writing when it returns.

        The announcement for the receiver has no ticket if the bytes must come otherwise: the channel is not ready, or
        all its slots are in use. None: there is no channel. Raise `DeviceError` if ``fill`` does.
        """
        link = self._outgoing_to(peer)
        if link is None:
            return None
        channel = link.channel
        if channel.state is not ChannelState.READY or num_bytes > channel.slot_bytes:
            return Announcement(self._life, channel.number, channel.unique_id)
        with link.lock:
            link.settle()
            slot = link.outbox.free_slot
            if slot is None:
                return Announcement(self._life, channel.number, channel.unique_id)
            fill(channel.slots[slot])
            try:
                event = channel.send(slot, num_bytes)
            except DeviceError as error:
                self._fail(link, str(error))
                return None
            ticket = link.outbox.add(num_bytes, self._clock() + self._limits.settle_s)
            link.events[ticket] = event
            return Announcement(self._life, channel.number, channel.unique_id, ticket, link.outbox.recent())

    def _outgoing_to(self, peer: str) -> NcclOutgoing | None:
        with self._lock:
            now = self._clock()
            self._sweep(now)
            link = self._outgoing.get(peer)
            if link is None and now >= self._retry_at.get(peer, now) and self._make_room():
                link = self._propose(peer, now)
            if link is not None:
                self._outgoing.move_to_end(peer)
            return link

    def _make_room(self) -> bool:
        """For one more channel: the least recently used one goes that sends nothing."""
        if len(self._outgoing) < self._limits.max_channels:
            return True
        for link in self._outgoing.values():
            if link.channel.state is ChannelState.READY and not len(link.outbox) and not link.lock.locked():
                self._drop([link], "others are used more")
                return True
        return False

    def _propose(self, peer: str, now: float) -> NcclOutgoing | None:
        try:
            unique_id = self._device.unique_id()
        except DeviceError:
            self._retry_at[peer] = now + self._limits.retry_s
            return None
        self._num_proposed += 1
        channel = self._channel(self._num_proposed, unique_id, SENDER, peer, self._limits.slots_out)
        link = self._outgoing[peer] = NcclOutgoing(
            channel, Outbox(self._limits.slots_out), now + self._limits.connect_s
        )
        return link

    # --- receiving ----------------------------------------------------------------------------------------------------

    def expect(self, peer: str, announcement: Announcement) -> NcclIncoming | None:
        """The channel that a sender announced; begin to connect it if it is new. One of its earlier ones is over then.

        None: it is over itself, or another's. A message may come late, and must not bring it back.
        """
        name = announcement.life, announcement.number
        with self._lock:
            self._sweep(self._clock())
            life, newest = self._newest.get(peer, ("", -1))
            if any(known == announcement.life for other, (known, _) in self._newest.items() if other != peer):
                return None
            if (life == announcement.life and announcement.number <= newest) or announcement.life in self._past_lives:
                link = self._incoming.get(peer)
                if link is None or link.name != name:
                    return None
                self._incoming.move_to_end(peer)
                return link
            if life not in ("", announcement.life):
                self._past_lives.append(life)
            return self._join(peer, announcement)

    def _join(self, peer: str, announcement: Announcement) -> NcclIncoming:
        self._newest[peer] = name = announcement.life, announcement.number
        if peer in self._incoming:
            self._drop([self._incoming[peer]], "its sender made a new one")
        elif len(self._incoming) >= self._limits.max_channels:
            self._drop([next(iter(self._incoming.values()))], "others are used more")
        channel = self._channel(announcement.number, announcement.unique_id, RECEIVER, peer, self._limits.slots_in)
        connect_by = self._clock() + self._limits.connect_s
        link = self._incoming[peer] = NcclIncoming(channel, name, Inbox(self._limits.slots_in), connect_by)
        return link

    def receive(
        self, peer: str, announcement: Announcement, num_bytes: int, use: Callable[[Region], None]
    ) -> str | None:
        """Let ``use`` read the region with the announced bytes; say what is wrong if they cannot be had.

        ``use`` has finished reading when it returns.
        """
        ticket = announcement.ticket
        assert ticket is not None, "the bytes came otherwise"
        link = self.expect(peer, announcement)
        if link is None:
            return "the NCCL channel is over or another's"
        deadline = self._clock() + self._limits.receive_s
        if not link.channel.is_ready(self._limits.receive_s):
            return f"the NCCL channel is {link.channel.state.value}"
        with link.lock:
            try:
                slot = self._fetch(link, ticket, announcement.recent, num_bytes, deadline)
                if slot is None:
                    return "the bytes had to make room for later ones, or have another size"
                use(link.channel.slots[slot])
            except (DeviceError, GapError) as error:
                self._fail(link, str(error))
                return str(error)
            link.inbox.give_back(slot)
        return None

    def _fetch(
        self, link: NcclIncoming, ticket: int, recent: Sequence[tuple[int, int]], num_bytes: int, deadline: float
    ) -> int | None:
        missing = link.inbox.missing(ticket, recent)
        if any(not 0 < size <= link.channel.slot_bytes for _, size in missing):
            raise GapError("a send is announced that fits no buffer")
        for number, size in missing:
            link.channel.receive(link.inbox.receive(number), size, deadline, self._clock)
        slot = link.inbox.take(ticket)
        if slot is not None and dict(recent).get(ticket) != num_bytes:
            link.inbox.give_back(slot)
            return None
        return slot

    # --- endings ------------------------------------------------------------------------------------------------------

    def _channel(self, number: int, unique_id: bytes, rank: int, peer: str, num_slots: int) -> Channel:
        channel = Channel(self._device, number, unique_id, rank, peer, num_slots, self._limits.slot_bytes)
        channel.start()
        if self._watch is None:
            self._watch = Thread(target=self._watch_channels, name="nccl-watch", daemon=True)
            self._watch.start()
        return channel

    def _fail(self, link: NcclOutgoing | NcclIncoming, reason: str) -> None:
        with self._lock:
            self._drop([link], reason)

    def _drop(self, links: Sequence[NcclOutgoing | NcclIncoming], reason: str) -> None:
        """Forget channels and abort them. Holding the lock."""
        for link in links:
            if isinstance(link, NcclOutgoing):
                if self._outgoing.get(link.channel.peer) is link:
                    del self._outgoing[link.channel.peer]
            elif self._incoming.get(link.channel.peer) is link:
                del self._incoming[link.channel.peer]
            Thread(target=link.channel.end, args=(reason,), name="nccl-end", daemon=True).start()

    def _sweep(self, now: float) -> None:
        """Drop what ended or is late; a sender does not propose to such a peer for a while. Holding the lock."""
        for link in self._all():
            if link.channel.state is ChannelState.ENDED or link.is_late(now):
                self._drop([link], "it is late or has ended")
                if isinstance(link, NcclOutgoing):
                    self._retry_at[link.channel.peer] = now + self._limits.retry_s

    def _watch_channels(self) -> None:
        while True:
            sleep(self._limits.watch_s)
            with self._lock:
                self._sweep(self._clock())
                if not self._outgoing and not self._incoming:
                    self._watch = None
                    return
