"""The sockets of one process: an inbox, a broadcast, connections to peers' inboxes, subscriptions to their broadcasts.

Nothing here blocks: a message to a peer whose queue is full is counted and dropped, because every protocol above has a
deadline for the answer. `Sockets.forget` drops what is queued for a peer that membership declared dead, so that its
successor is not handed old work.

Whoever reaches a listening socket can send it anything. What a frame and a message may have is bounded; a connection
whose handshake does not end is closed, and so is one over TCP whose peer has gone without a word. Whatever passes that
and is no message is counted, logged now and then, and dropped.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import zmq
import zmq.asyncio

from mesh.directory import Directory, Endpoints
from mesh.process.lazy_log import LazyLog
from mesh.process.rare_warnings import RareWarnings
from mesh.sockets.broadcast import Broadcast
from mesh.sockets.curve import Curve, CurveKey
from mesh.sockets.inlet import Inlet
from mesh.wire.bounds import MAX_BODY_BYTES, MAX_FRAMES
from mesh.wire.frames import MAX_SENDER_BYTES, TOPIC_ANSWER, TOPIC_STATUS, TOPIC_TAP, WIRE_VERSION, Sender, WireError
from mesh.wire.hosts import HostPlace, HostsMoved
from mesh.wire.messages import BroadcastMessage, Codec, Message, VisitorAnswer, encode
from mesh.wire.transfers import Blocks

HIGH_WATER_MARK = 4096  # messages queued for one peer, or from all peers
MAX_BLOCK_BYTES = 256 * 2**20  # of one KV block, which is a frame
MOST_REST_S = 0.02
REST_SHARE = 1 / 8  # of the gap between two statuses of a process: by so much more they may be late
MAX_WORD_BYTES = 1024  # where no messages come in: what CURVE says in its handshake, and topics
HANDSHAKE_S = 10.0
SILENT_PEER_S = 30  # over TCP: a host that is gone; processes that are only stopped are answered for by their kernel
PULSE = b""  # the body of a status that says no more than that its sender lives
LOCAL_SEND_BYTES = 256 * 2**10  # that the kernel may hold on their way to a peer on this host, over TCP

Frame = bytes | bytearray | memoryview | zmq.Frame
M = TypeVar("M")

log = LazyLog()

_sender_of = lru_cache(maxsize=1024)(Sender.decode)


class Received(NamedTuple, Generic[M]):
    sender: Sender
    message: M
    payload: Sequence[zmq.Frame]


class Sockets(Generic[M]):
    """One process's place in the mesh. ``union`` is the type of messages that its inbox takes.

    ``status_gap_s``: from one status of a process to its next; where that takes a while, statuses are read together.
    """

    def __init__(
        self,
        me: Sender,
        endpoints: Mapping[str, Endpoints],
        union: object,
        context: zmq.asyncio.Context | None = None,
        key: CurveKey | None = None,
        status_gap_s: float = 0.0,
    ) -> None:
        self.me = me
        self.counters: Counter[str] = Counter()
        self._warnings = RareWarnings()
        self._directory = endpoints if isinstance(endpoints, Directory) else Directory.fixed(endpoints)
        self._codec: Codec[M | HostsMoved] = Codec(union | HostsMoved)
        self._subscribed: dict[str, str | None] = {}  # the broadcast that is listened to, by process; None: not known
        self._broadcast_codec: Codec[BroadcastMessage] = Codec(BroadcastMessage)
        self._answer_codec: Codec[VisitorAnswer] = Codec(VisitorAnswer)
        self._context = context or zmq.asyncio.Context()
        self._owns_context = context is None
        self._curve = Curve(key, zmq.Context(self._context)) if key else None
        self._sender_frame = me.encode()
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._tapped = False
        # Plain sockets, not asyncio ones: sending never waits, and receiving has inlets.
        self._plain_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(self._context)
        takes_blocks = Blocks in get_args(union)
        self._inbox = self._receiver(zmq.PULL, MAX_BLOCK_BYTES if takes_blocks else MAX_BODY_BYTES)
        self._subscriptions = self._receiver(zmq.SUB, MAX_BODY_BYTES)
        self._subscriptions.subscribe(TOPIC_STATUS)
        self._inlet = Inlet(self._inbox)
        self._status_inlet = Inlet(self._subscriptions, min(MOST_REST_S, REST_SHARE * status_gap_s))
        publisher: zmq.Socket[bytes] = self._plain_context.socket(zmq.XPUB)
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        _distrust(publisher, MAX_WORD_BYTES)
        self._publisher, self._broadcast = publisher, Broadcast(publisher)
        if self._curve:
            self._curve.secure_client(self._subscriptions)

    def __repr__(self) -> str:
        return f"<Sockets {self.me.process}@{self.me.incarnation} peers={sorted(self._outboxes)} {dict(self.counters)}>"

    def _receiver(self, kind: int, max_frame_bytes: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._plain_context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        _distrust(socket, max_frame_bytes)
        return socket

    def bind(self) -> None:
        """Raise `zmq.ZMQError` if an address is taken."""
        mine = self._directory.listening(self.me.process)
        if self._curve:
            self._curve.secure_server(self._inbox)
            self._curve.secure_server(self._publisher)
        self._inbox.bind(mine.inbox)
        self._broadcast.bind(mine.broadcast)

    def place(self, host: str) -> HostPlace | None:
        """Return where a host is; None: nowhere, or hosts are where the topology says."""
        return self._directory.place(host)

    @property
    def known(self) -> Iterable[str]:
        """All processes of the mesh that are somewhere."""
        return self._directory

    def away(self) -> list[str]:
        """Return the hosts that are nowhere."""
        return self._directory.away()

    def subscribe(self, processes: Iterable[str]) -> None:
        """Listen to their statuses, wherever they are; to those that are nowhere yet once they are somewhere."""
        for process in processes:
            self._subscribed[process] = None
            self._listen_to(process)

    def _listen_to(self, process: str) -> None:
        known, wanted = self._subscribed[process], self._broadcast_of(process)
        if wanted == known:
            return
        try:
            if known is not None:
                self._subscriptions.disconnect(known)
            if wanted is not None:
                self._subscriptions.connect(wanted)
        except zmq.ZMQError as error:
            log.warning("cannot listen to a process", peer=process, address=wanted, error=error.strerror)
        self._subscribed[process] = wanted

    def _broadcast_of(self, process: str) -> str | None:
        endpoints = self._directory.get(process)
        return None if endpoints is None else endpoints.broadcast

    def hosts_moved(self, places: Iterable[HostPlace]) -> None:
        """Find the processes of these hosts where they are now. What was queued for where they were is dropped."""
        for process in self._directory.moved(places):
            endpoints = self._directory.get(process)
            log.info("a process is elsewhere now", peer=process, inbox=None if endpoints is None else endpoints.inbox)
            self.forget(process)
            if process in self._subscribed:
                self._listen_to(process)

    def send(self, to: str, message: Message, payload: Sequence[Frame] = ()) -> bool:
        """Queue a message for a peer's inbox; False if it was dropped (peer unknown, not connected, or not reading)."""
        try:
            outbox = self._outboxes.get(to) or self._connect(to)
        except zmq.ZMQError as error:  # no descriptors are left, or its address is none
            self.counters["send_unconnected"] += 1
            log.warning("dropped a message: cannot connect", peer=to, error=error.strerror)
            return False
        if outbox is None:
            self.counters["send_unknown_peer"] += 1
            return False
        body = encode(message)
        try:
            outbox.send_multipart([WIRE_VERSION, self._sender_frame, body, *payload], zmq.DONTWAIT, copy=not payload)
        except zmq.Again:
            self.counters["send_dropped"] += 1
            return False
        if self._tapped:
            self._mirror(to, body)
        return True

    def _connect(self, to: str) -> "zmq.Socket[bytes] | None":
        endpoints = self._directory.get(to)
        if endpoints is None:
            return None
        # A plain socket, not an asyncio one: a send never waits, so it needs no future.
        outbox: zmq.Socket[bytes] = self._plain_context.socket(zmq.PUSH)
        try:
            self._point(outbox, endpoints.inbox)
        except BaseException:
            outbox.close(linger=0)  # whatever holds it, a traceback for one: the context's end waits for open sockets
            raise
        self._outboxes[to] = outbox
        return outbox

    def _point(self, outbox: "zmq.Socket[bytes]", inbox: str) -> None:
        outbox.setsockopt(zmq.LINGER, 2000)
        outbox.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        outbox.setsockopt(zmq.RECONNECT_IVL, 20)
        outbox.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        _distrust(outbox, MAX_WORD_BYTES)
        if self._is_local_tcp(inbox):  # left to itself, the kernel queues megabytes, which leave the caches
            outbox.setsockopt(zmq.SNDBUF, LOCAL_SEND_BYTES)
        if self._curve:
            self._curve.secure_client(outbox)
        outbox.connect(inbox)

    def _is_local_tcp(self, inbox: str) -> bool:
        """Between hosts the kernel knows best: as much must be on its way as the network takes."""
        mine = self._directory.get(self.me.process)  # visitors have none
        return mine is not None and inbox.startswith("tcp://") and _host(inbox) == _host(mine.inbox)

    def forget(self, process: str) -> None:
        """Drop the connection to a dead peer's inbox together with what is queued there.

        The connection closes in the background: a peer that is back within milliseconds may still be handed old work.
        """
        outbox = self._outboxes.pop(process, None)
        if outbox is not None:
            outbox.close(linger=0)

    def _mirror(self, to: str, body: bytes) -> None:
        self._broadcast.send([TOPIC_TAP, WIRE_VERSION, self._sender_frame, body, to.encode()])

    def publish(self, message: BroadcastMessage) -> None:
        self._broadcast.send([TOPIC_STATUS, WIRE_VERSION, self._sender_frame, encode(message)])

    def answer(self, asker: str, message: VisitorAnswer) -> None:
        """Publish for one process alone, which need not have an inbox: see `answers`."""
        self._broadcast.send([_answers_of(asker), WIRE_VERSION, self._sender_frame, encode(message)])

    def expect_answers(self) -> None:
        """Have `answers` hear what the processes that this one listens to publish for it.

        Call it before `subscribe`: a process hears of its subscribers' topics in alphabetical order, so that whoever
        knows that this one listens to its statuses can answer it, too. Called later, an answer may come too early.
        """
        self._subscriptions.subscribe(_answers_of(self.me.process))

    def pulse(self) -> None:
        """Say that this process lives, and no more. From any thread but the event loop's."""
        self._broadcast.send_from_thread([TOPIC_STATUS, WIRE_VERSION, self._sender_frame, PULSE])

    async def messages(self) -> AsyncIterator[Received[M]]:
        """Return what peers send to this process. Where hosts are now is taken note of.

        Malformed input is counted, logged with its sender, and dropped.
        """
        while True:
            frames = await self._inlet.receive()
            try:
                received = self._decode(frames)
            except WireError as error:
                self._drop(error, frames)
                continue
            if not isinstance(received.message, HostsMoved):
                yield received  # type: ignore[misc]  # it is of the union
            elif received.sender.process == self._directory.supervisor_of(self.me.process):
                self.hosts_moved(received.message.places)
            else:
                self.refuse(received.sender, received.message, "it does not supervise this process")

    def _decode(self, frames: Sequence[zmq.Frame]) -> Received[M | HostsMoved]:
        if not 3 <= len(frames) <= MAX_FRAMES or frames[0].buffer != WIRE_VERSION:
            raise WireError(f"not a {WIRE_VERSION.decode()} message: {len(frames)} frames")
        return Received(_sender(frames[1]), self._codec.decode(frames[2].buffer), frames[3:])

    def _drop(self, error: WireError, frames: Sequence[zmq.Frame]) -> None:
        self.counters["received_malformed"] += 1
        sender = bytes(frames[1].buffer[:64]).decode(errors="replace") if len(frames) > 1 else "?"
        num_silent = self._warnings.admit(sender, time.monotonic())
        if num_silent is not None:
            log.warning("dropped a malformed message", sender=sender, error=str(error), not_logged_before=num_silent)

    def refuse(self, sender: Sender, message: Message, reason: str) -> None:
        """Count a well-formed message that its sender may not send, and log it now and then."""
        self.counters["received_refused"] += 1
        num_silent = self._warnings.admit(sender.process, time.monotonic())
        if num_silent is not None:
            kind = type(message).__name__
            log.warning("refused", sender=sender.process, kind=kind, reason=reason, not_logged_before=num_silent)

    async def broadcasts(self) -> AsyncIterator[tuple[Sender, BroadcastMessage]]:
        """Statuses of the processes that this one subscribed to."""
        async for sender, status in self.beacons(lambda _: True):
            if status is not None:
                yield sender, status

    async def beacons(self, reads: Callable[[str], bool]) -> AsyncIterator[tuple[Sender, BroadcastMessage | None]]:
        """The same and pulses. None: a pulse, or a status of a process that ``reads`` leaves out. It lives."""
        while True:
            frames = await self._status_inlet.receive()
            try:
                if frames[0].buffer != TOPIC_STATUS:
                    continue  # an answer that nobody waits for any more
                if len(frames) != 4 or frames[1].buffer != WIRE_VERSION:
                    raise WireError("not a status of this version")
                sender = _sender(frames[2])
                is_read = len(frames[3]) > 0 and reads(sender.process)
                yield sender, self._broadcast_codec.decode(frames[3].buffer) if is_read else None
            except WireError as error:
                self._drop(error, frames[1:])

    async def answers(self) -> AsyncIterator[tuple[Sender, VisitorAnswer]]:
        """Yield what is published for this process alone; see `expect_answers`. Statuses are left out meanwhile."""
        while True:
            frames = await self._status_inlet.receive()
            if len(frames) == 4 and frames[0].buffer == _answers_of(self.me.process):
                try:
                    yield _sender(frames[2]), self._answer_codec.decode(frames[3].buffer)
                except WireError as error:
                    self._drop(error, frames[1:])

    async def subscribers(self) -> AsyncIterator[bool]:
        """Yields True each time that somebody starts listening to our status: a good moment to publish it."""
        while True:
            frame = await self._broadcast.receive()
            joined, topic = frame[:1] == b"\x01", frame[1:]
            if topic == TOPIC_TAP:
                self._tapped = joined
            elif joined and topic == TOPIC_STATUS:
                yield True

    async def close(self) -> None:
        """Close the sockets; what was sent last still leaves, within the outboxes' linger."""
        await asyncio.sleep(0)
        self._inlet.close()
        self._status_inlet.close()
        self._broadcast.close()
        for outbox in self._outboxes.values():
            outbox.close()
        if self._curve:
            self._curve.close()
        if self._owns_context:
            self._context.term()


def _distrust(socket: "zmq.Socket[Any] | zmq.asyncio.Socket", max_frame_bytes: int) -> None:
    """Before ``bind`` or ``connect``: what a peer may do that was not asked who it is, or has gone."""
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * HANDSHAKE_S))
    socket.setsockopt(zmq.TCP_MAXRT, 1000 * SILENT_PEER_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, SILENT_PEER_S // 2)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, SILENT_PEER_S // 6)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)


def _sender(frame: zmq.Frame) -> Sender:
    if len(frame) > MAX_SENDER_BYTES:
        raise WireError(f"bad sender frame: {len(frame)} bytes, at most {MAX_SENDER_BYTES} are")
    return _sender_of(frame.bytes)


def _answers_of(asker: str) -> bytes:
    """Return the topic of what is published for that process alone. No topic is the beginning of another one."""
    return TOPIC_ANSWER + asker.encode() + b"@"


def _host(address: str) -> str:
    return address.rpartition(":")[0]
