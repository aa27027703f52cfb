"""A network as TCP and ZeroMQ are when things go wrong: what cannot be sent now waits, what a fate takes is lost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import inf
from typing import Any

from mesh.sockets.sockets import HIGH_WATER_MARK
from mesh.wire.frames import Sender
from mesh.wire.messages import Message
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from simulation.faults.faults import ON_TIME, Copy
from simulation.kernel import Kernel
from simulation.network import Network, Observe, OtherStatus, Receive, Watch

Fate = Callable[[str, str, Any], Sequence[Copy]]
Hear = Callable[[Sender, Any], None]
Notice = Callable[[Sender, EngineStatus | None], None]
Tap = Callable[[float, str, Sender, str, Any], None]
Link = tuple[str, str]


class FaultyNetwork(Network):
    """A network with faults. With ``fate``, each message (from, to, what) has as many copies as it gives: none is a
    loss.

    Links stay in order, as connections are, but for copies that lose their place; statuses take a connection of their
    own. Messages over a link that is cut, and messages sent to a process that is down, wait until that ends, unless
    their sender forgets the peer, `HIGH_WATER_MARK` of them at most. What is on its way to a process that is down when
    it comes is lost. ``tap`` sees when what is ``sent``, ``lost``, ``held`` or ``heard``, from whom and to whom.
    """

    has_faults = True

    def __init__(self, kernel: Kernel, latency_s: float, fate: Fate | None = None) -> None:
        super().__init__(kernel, latency_s)
        self.tap: Tap | None = None
        self._fate = fate
        self._senders: dict[str, Sender] = {}
        self._down: set[str] = set()
        self._num_cuts: Counter[Link] = Counter()
        self._last_arrival: dict[tuple[Link, bool], float] = {}  # by link, of statuses or of messages
        self._held: defaultdict[Link, list[tuple[Sender, Any]]] = defaultdict(list)
        self._hears: dict[str, Hear] = {}
        self._notices: dict[str, Notice] = {}

    # --- processes ----------------------------------------------------------------------------------------------------

    def connect(self, process: str, receive: Receive) -> None:
        self.hear(process, lambda sender, message: receive(sender.process, message))

    def hear(self, process: str, hear: Hear) -> None:
        """Do as `connect`, with the incarnation of the sender."""
        self._hears[process] = hear

    def notice(self, process: str, notice: Notice) -> None:
        """Let a process hear from all others. ``process`` hears from all others that they live, and engines'
        statuses.
        """
        self._notices[process] = notice

    def go_down(self, process: str) -> None:
        self._down.add(process)

    def come_up(self, me: Sender) -> None:
        """A new incarnation takes what waits for its process. Call when it is connected."""
        self._down.discard(me.process)
        self._senders[me.process] = me
        self._release(link for link in list(self._held) if link[1] == me.process)

    def forget(self, process: str, peer: str) -> None:
        """Forget a connection. What has left already still comes over it, and what is sent from now on may
        overtake it.
        """
        self._held.pop((process, peer), None)
        self._last_arrival.pop(((process, peer), False), None)

    # --- links --------------------------------------------------------------------------------------------------------

    def cut(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between any of these and any of those, in both directions."""
        self._num_cuts.update(_links(some, others))

    def mend(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Undo one `cut`."""
        links = _links(some, others)
        self._num_cuts.subtract(links)
        self._release(links)

    def _is_blocked(self, link: Link) -> bool:
        return self._num_cuts[link] > 0 or link[1] in self._down

    def _hold(self, link: Link, sender: Sender, message: Any) -> None:
        held = self._held[link]
        if len(held) < HIGH_WATER_MARK:
            held.append((sender, message))
            self._tell("held", sender, link[1], message)
        else:
            self._tell("lost", sender, link[1], message)

    def _release(self, links: Iterable[Link]) -> None:
        for link in links:
            if not self._is_blocked(link):
                for sender, message in self._held.pop(link, ()):
                    self._hand_over(link[1], sender, message)

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, sender: str, to: str, message: Message) -> None:
        me = self._senders.get(sender) or Sender(sender, 1)
        self._tell("sent", me, to, message)
        if to in self._down:
            self._hold((sender, to), me, message)
        else:
            self._transmit(me, to, message)

    def publish(self, sender: Sender, status: EngineStatus) -> None:
        for listener in self._listeners:
            self._transmit(sender, listener, status)
        self.show(sender, status)

    def tell(self, sender: Sender, status: OtherStatus) -> None:
        for watcher in self._watchers[type(status)]:
            self._transmit(sender, watcher, status)

    def live(self, sender: Sender) -> None:
        self.show(sender)

    def show(self, sender: Sender, message: EngineStatus | None = None) -> None:
        """Let other processes notice that the sender lives."""
        self._kernel.after(self._latency_s, self._be_noticed, sender, message)

    def _be_noticed(self, sender: Sender, message: EngineStatus | None) -> None:
        for process, notice in self._notices.items():
            link = sender.process, process
            if process != sender.process and not self._is_blocked(link) and self._copies(*link, message):
                notice(sender, message)

    def _copies(self, sender: str, to: str, message: Any) -> Sequence[Copy]:
        return ON_TIME if self._fate is None else self._fate(sender, to, message)

    def _transmit(self, sender: Sender, to: str, message: Any) -> None:
        link = sender.process, to
        connection = link, isinstance(message, EngineStatus | OtherStatus)
        copies = self._copies(sender.process, to, message)
        if not copies:
            self._tell("lost", sender, to, message)
        for copy in copies:
            in_turn = self._last_arrival.get(connection, -inf)
            arrival = max(self._kernel.now + self._latency_s + copy.late_s, in_turn)
            if copy.keeps_place:
                self._last_arrival[connection] = arrival
            self._kernel.at(arrival, self._arrive, link, sender, message)

    def _arrive(self, link: Link, sender: Sender, message: Any) -> None:
        if self._num_cuts[link] > 0:
            self._hold(link, sender, message)
        elif link[1] in self._down:
            self._tell("lost", sender, link[1], message)
        else:
            self._hand_over(link[1], sender, message)

    def _hand_over(self, to: str, sender: Sender, message: Any) -> None:
        self._tell("heard", sender, to, message)
        hear: Hear | Observe | Watch
        match message:
            case EngineStatus():
                hear = self._listeners[to]
            case GatewayStatus() | PlacementStatus() | SupervisorStatus():
                hear = self._watchers[type(message)][to]
            case _:
                hear = self._hears[to]
        hear(sender, message)

    def _tell(self, event: str, sender: Sender, to: str, message: Any) -> None:
        if self.tap is not None:
            self.tap(self._kernel.now, event, sender, to, message)


def _links(some: Iterable[str], others: Iterable[str]) -> list[Link]:
    pairs = list(product(some, others))
    return [*pairs, *((other, one) for one, other in pairs)]
