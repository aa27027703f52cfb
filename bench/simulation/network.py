"""Messages between simulated processes: each takes a while, and keeps its place behind those sent before it."""

from collections.abc import Callable, Sequence
from typing import Any

from bench.simulation.kernel import Kernel
from mesh.messages import EngineStatus, Message, Sender

Receive = Callable[[str, Any], None]
Observe = Callable[[Sender, EngineStatus], None]
Fate = Callable[[str, str, Message], Sequence[float]]


class Network:
    """``latency_s`` is that of a control message. With ``fate``, each message (from, to, what) has as many copies as it
    gives extra delays in seconds: none is a loss, two are a duplication. Links stay in order, as sockets are.
    """

    def __init__(self, kernel: Kernel, latency_s: float, fate: Fate | None = None) -> None:
        self._kernel = kernel
        self._latency_s = latency_s
        self._fate = fate
        self._inboxes: dict[str, Receive] = {}
        self._listeners: dict[str, Observe] = {}
        self._last_arrival: dict[tuple[str, str], float] = {}

    def connect(self, process: str, receive: Receive) -> None:
        """Messages to ``process`` go to ``receive(sender, message)``."""
        self._inboxes[process] = receive

    def subscribe(self, process: str, observe: Observe) -> None:
        """``process`` hears all statuses."""
        self._listeners[process] = observe

    def send(self, sender: str, to: str, message: Message) -> None:
        self._deliver(sender, to, message, self._inboxes[to], sender)

    def publish(self, sender: Sender, status: EngineStatus) -> None:
        for listener, observe in self._listeners.items():
            self._deliver(sender.process, listener, status, observe, sender)

    def _deliver(self, sender: str, to: str, message: Message, receive: Callable[..., None], origin: object) -> None:
        if self._fate is None:
            self._kernel.at(self._kernel.now + self._latency_s, receive, origin, message)
            return
        for extra_s in self._fate(sender, to, message):
            arrival = max(self._kernel.now + self._latency_s + extra_s, self._last_arrival.get((sender, to), 0.0))
            self._last_arrival[sender, to] = arrival
            self._kernel.at(arrival, receive, origin, message)
