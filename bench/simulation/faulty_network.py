"""A network as TCP and ZeroMQ are when things go wrong: what cannot be sent now waits, what a fate takes is lost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import inf
from typing import Any

from bench.simulation.kernel import Kernel
from bench.simulation.network import Network, Receive
from mesh.messages import EngineStatus, Message, Sender

Fate = Callable[[str, str, Message], Sequence[float]]
Hear = Callable[[Sender, Any], None]
Notice = Callable[[Sender, EngineStatus | None], None]


class FaultyNetwork(Network):
    """With ``fate``, each message (from, to, what) has as many copies as it gives extra delays in seconds: none is a
    loss, two are a duplication. Links stay in order, as sockets are.

    Messages over a link that is cut, and messages sent to a process that is down, wait until that ends, unless their
    sender forgets the peer. What is on its way to a process when it goes down is lost.
    """

    def __init__(self, kernel: Kernel, latency_s: float, fate: Fate | None = None) -> None:
        super().__init__(kernel, latency_s)
        self._fate = fate
        self._lives: dict[str, Sender] = {}
        self._down: set[str] = set()
        self._num_cuts: Counter[tuple[str, str]] = Counter()
        self._last_arrival: dict[tuple[str, str], float] = {}
        self._held: defaultdict[tuple[str, str], list[tuple[Sender, Any]]] = defaultdict(list)
        self._hears: dict[str, Hear] = {}
        self._notices: dict[str, Notice] = {}

    # --- processes ----------------------------------------------------------------------------------------------------

    def connect(self, process: str, receive: Receive) -> None:
        self.hear(process, lambda sender, message: receive(sender.process, message))

    def hear(self, process: str, hear: Hear) -> None:
        """As `connect`, with the life of the sender."""
        self._hears[process] = hear

    def notice(self, process: str, notice: Notice) -> None:
        """``process`` hears from all others that they live, and engines' statuses."""
        self._notices[process] = notice

    def go_down(self, process: str) -> None:
        self._down.add(process)

    def come_up(self, me: Sender) -> None:
        """A new life takes what waits for its process. Call when it is connected."""
        self._down.discard(me.process)
        self._lives[me.process] = me
        self._release(link for link in list(self._held) if link[1] == me.process)

    def forget(self, process: str, peer: str) -> None:
        self._held.pop((process, peer), None)

    # --- links --------------------------------------------------------------------------------------------------------

    def cut(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between any of these and any of those, in both directions."""
        self._num_cuts.update(_links(some, others))

    def mend(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Undo one `cut`."""
        links = _links(some, others)
        self._num_cuts.subtract(links)
        self._release(links)

    def _is_blocked(self, link: tuple[str, str]) -> bool:
        return self._num_cuts[link] > 0 or link[1] in self._down

    def _release(self, links: Iterable[tuple[str, str]]) -> None:
        for link in links:
            if not self._is_blocked(link):
                for sender, message in self._held.pop(link, ()):
                    self._hand_over(link[1], sender, message)

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, sender: str, to: str, message: Message) -> None:
        life = self._lives.get(sender) or Sender(sender, 1)
        if to in self._down:
            self._held[sender, to].append((life, message))
        else:
            self._transmit(life, to, message)

    def publish(self, sender: Sender, status: EngineStatus) -> None:
        for listener in self._listeners:
            self._transmit(sender, listener, status)
        self.show(sender, status)

    def show(self, sender: Sender, message: EngineStatus | None = None) -> None:
        """Let other processes notice that the sender lives."""
        self._kernel.after(self._latency_s, self._be_noticed, sender, message)

    def _be_noticed(self, sender: Sender, message: EngineStatus | None) -> None:
        for process, notice in self._notices.items():
            link = sender.process, process
            if process != sender.process and not self._is_blocked(link) and not self._is_lost(*link, message):
                notice(sender, message)

    def _is_lost(self, sender: str, to: str, message: Any) -> bool:
        return self._fate is not None and not self._fate(sender, to, message)

    def _transmit(self, sender: Sender, to: str, message: Any) -> None:
        link = sender.process, to
        delays_s = [0.0] if self._fate is None else self._fate(sender.process, to, message)
        for extra_s in delays_s:
            arrival = max(self._kernel.now + self._latency_s + extra_s, self._last_arrival.get(link, -inf))
            self._last_arrival[link] = arrival
            self._kernel.at(arrival, self._arrive, link, sender, message)

    def _arrive(self, link: tuple[str, str], sender: Sender, message: Any) -> None:
        if self._num_cuts[link] > 0:
            self._held[link].append((sender, message))
        elif link[1] not in self._down:
            self._hand_over(link[1], sender, message)

    def _hand_over(self, to: str, sender: Sender, message: Any) -> None:
        hear = self._listeners[to] if isinstance(message, EngineStatus) else self._hears[to]
        hear(sender, message)


def _links(some: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    pairs = list(product(some, others))
    return [*pairs, *((other, one) for one, other in pairs)]
