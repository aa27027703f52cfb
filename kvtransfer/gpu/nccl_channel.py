"""One direction of NCCL between two engines: a communicator of two ranks, its stream and its buffers on the device.

The sender is rank 0, the receiver rank 1; two engines that send to one another have two channels. So no call of one
side waits for another call of the same side, and no order of calls can deadlock.

Connecting waits for the other side for as long as that takes: cupy offers no communicator that does not block. So it
has a thread of its own, which ends with a first small message: NCCL connects two ranks when they first exchange
something, and that may block, too. A channel that is late, whose peer died or whose sends are not received is aborted,
from yet another thread, for aborting may hang. Whoever waits for a channel waits until a deadline.
"""

from collections.abc import Callable
from enum import StrEnum
from threading import Condition, Thread
from time import sleep

import structlog

from kvtransfer.gpu.device import Communicator, Device, DeviceError, Event, Region, Stream

GREETING_BYTES = 512
POLL_S = 0.0001

log = structlog.get_logger()


class ChannelState(StrEnum):
    CONNECTING = "connecting"
    READY = "ready"
    ENDED = "ended"


class Channel:
    """One direction between two engines. ``number`` and ``unique_id`` are the same at both ends. ``slots``, of
    ``slot_bytes``, exist once it is ready.
    """

    def __init__(
        self, device: Device, number: int, unique_id: bytes, rank: int, peer: str, num_slots: int, slot_bytes: int
    ) -> None:
        self.number = number
        self.unique_id = unique_id
        self.peer = peer
        self.slot_bytes = slot_bytes
        self.state = ChannelState.CONNECTING
        self._rank = rank
        self._num_slots = num_slots
        self._device = device
        self._changed = Condition()
        self._communicator: Communicator | None = None
        self._stream: Stream | None = None
        self.slots: list[Region] = []

    def __repr__(self) -> str:
        return f"<Channel {self.number} {'to' if self._rank == 0 else 'from'} {self.peer} {self.state.value}>"

    def start(self) -> None:
        """Connect in the background."""
        Thread(target=self._connect, name=f"nccl-{self.peer}", daemon=True).start()

    def _connect(self) -> None:
        try:
            communicator = self._device.communicator(self.unique_id, self._rank)
            with self._changed:
                if self.state is ChannelState.ENDED:
                    return
                self._communicator = communicator
            communicator.connect()
            slots = [self._device.allocate(self.slot_bytes) for _ in range(self._num_slots)]
            stream = self._device.stream()
            if not self._greet(communicator, slots[0], stream):
                _abort(communicator)  # an abort while it connected may have found nothing to abort
                return
            stream.synchronize()
        except DeviceError as error:
            self.end(str(error))
            return
        with self._changed:
            if self.state is ChannelState.CONNECTING:
                self.slots, self._stream, self.state = slots, stream, ChannelState.READY
                self._changed.notify_all()

    def _greet(self, communicator: Communicator, slot: Region, stream: Stream) -> bool:
        """Queue the first message, unless the channel has ended meanwhile."""
        with self._changed:
            if self.state is ChannelState.ENDED:
                return False
            exchange = communicator.send if self._rank == 0 else communicator.receive
            exchange(slot, GREETING_BYTES, stream)
            return True

    def is_ready(self, patience_s: float) -> bool:
        """Return whether the channel is ready, or gets ready in time."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not ChannelState.CONNECTING, patience_s)
            return self.state is ChannelState.READY

    def end(self, reason: str) -> None:
        """Abort what is queued. Nothing can be sent or received any more. From any thread; does not wait long."""
        if self._changed.acquire(timeout=1.0):  # a call that hangs holds it: the abort is what frees that
            try:
                if self.state is ChannelState.ENDED:
                    return
                self.state = ChannelState.ENDED
                self._changed.notify_all()
            finally:
                self._changed.release()
        self.state = ChannelState.ENDED
        log.info("ended an NCCL channel", channel=repr(self), reason=reason)
        if self._communicator is not None:
            Thread(target=_abort, args=(self._communicator,), name="nccl-abort", daemon=True).start()

    def send(self, slot: int, num_bytes: int) -> Event:
        """Queue a send; the event: the receiver has it. Raise `DeviceError`."""
        return self._exchange(slot, num_bytes, lambda communicator: communicator.send)

    def receive(self, slot: int, num_bytes: int, deadline: float, clock: Callable[[], float]) -> None:
        """Raise `DeviceError` if it has not come by the deadline; the channel is of no use then."""
        event = self._exchange(slot, num_bytes, lambda communicator: communicator.receive)
        while not event.is_done():
            if clock() >= deadline or self.state is ChannelState.ENDED:
                reason = f"{self.peer} did not send in time"
                self.end(reason)
                raise DeviceError(reason)
            sleep(POLL_S)

    def _exchange(
        self, slot: int, num_bytes: int, call: Callable[[Communicator], Callable[[Region, int, Stream], None]]
    ) -> Event:
        with self._changed:
            if self.state is not ChannelState.READY or self._communicator is None or self._stream is None:
                raise DeviceError(f"the channel is {self.state.value}")
            call(self._communicator)(self.slots[slot], num_bytes, self._stream)
            return self._stream.record()


def _abort(communicator: Communicator) -> None:
    try:
        communicator.abort()
    except DeviceError as error:
        log.warning("could not abort an NCCL communicator", error=str(error))
