"""A gateway's core in virtual time: what `router.gateway` is with sockets and a clock, on a kernel and a network."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf

from mesh.effects import Forget, Publish, Rest
from mesh.wire.frames import Sender
from mesh.wire.messages import GatewayMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.requests import RequestSpec
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from router.effects import GatewayEffect, SendToEngine
from router.gateway_core import GatewayCore, GatewayParts
from router.generation import RouterError
from router.history.timeline import RequestTimeline
from simulation.kernel import Kernel
from simulation.network import Network, OtherStatus

URL = "http://simulated"


class SimulatedGateway:
    """One incarnation of a gateway.

    ``watches_others``: it hears of other gateways. Where nobody fails and no policy asks for them, nobody needs to.
    """

    def __init__(
        self, me: Sender, parts: GatewayParts, kernel: Kernel, network: Network, *, watches_others: bool
    ) -> None:
        self.core = GatewayCore(parts)
        self.watches_others = watches_others
        self._me = me
        self._kernel = kernel
        self._network = network
        self._armed_at = inf
        self.on_rest: Callable[[], object] | None = None  # called when it has drained
        network.connect(me.process, self.receive)
        network.subscribe(me.process, self.hear)
        for kind in self.watched():
            network.watch(me.process, kind, self.hear)

    def __repr__(self) -> str:
        return f"<SimulatedGateway {self._me.process} {self.core!r}>"

    def watched(self) -> list[type[OtherStatus]]:
        """Kinds of status that it hears beside those of engines."""
        return [PlacementStatus, SupervisorStatus, *([GatewayStatus] if self.watches_others else [])]

    def start(self, at: float) -> None:
        """Begin at that time, with the first status."""
        self._kernel.at(at, self._start)

    def _start(self) -> None:
        now = self._kernel.now
        self._carry_out(self.core.start(now))
        self._carry_out(self.core.open(URL, URL, now))

    def arrived(self, spec: RequestSpec) -> RequestTimeline:
        """A request reaches the host; the gateway takes it up at once, or when it goes on."""
        return self.core.dispatcher.timelines.arrived(spec, self._kernel.now)

    def submit(self, spec: RequestSpec, timeline: RequestTimeline, tenant: str = "") -> None:
        """Take up a request that arrived. Its timeline tells whether it was refused."""
        with suppress(RouterError):
            self._carry_out(self.core.submit(spec, timeline, self._kernel.now, tenant))

    def died(self, error: RouterError) -> None:
        """It will be heard of no more: its requests have failed."""
        timelines = self.core.dispatcher.timelines
        for timeline in timelines.open:
            timelines.failed(timeline, error, self._kernel.now)

    def cancel(self, request: str) -> None:
        """Cancel a request whose client goes away."""
        self._carry_out(self.core.cancel(request, self._kernel.now))

    def fall_behind(self, request: str, num_bytes: int) -> None:
        """Cut off a request whose client reads too slowly."""
        self._carry_out(self.core.fall_behind(request, num_bytes, self._kernel.now))

    def drain(self) -> None:
        """Somebody wants it to end."""
        self._carry_out(self.core.drain(self._kernel.now))

    def receive(self, sender: str, message: GatewayMessage) -> None:
        self._carry_out(self.core.receive(sender, message, self._kernel.now))

    def hear(self, sender: Sender, status: EngineStatus | OtherStatus) -> None:
        """Somebody's status, perhaps its own."""
        if sender.process != self._me.process:
            effects = self.core.hear(sender, status, self._kernel.now)
            if effects or self._network.has_faults or self._armed_at == inf or self.core.dispatcher.num_waiting:
                self._carry_out(effects)  # else a lease is put off at most: what is armed looks again

    def _expire(self, when: float) -> None:
        if when == self._armed_at:
            self._armed_at = inf
            self._carry_out(self.core.expire(self._kernel.now))

    def _carry_out(self, effects: Iterable[GatewayEffect]) -> None:
        """Clients are not simulated: what they would see is in the timelines."""
        for effect in effects:
            match effect:
                case SendToEngine(to, message):
                    self._network.send(self._me.process, to, message)
                case Forget(engine):
                    self._network.forget(self._me.process, engine)
                case Publish():
                    self._network.live(self._me)
                    if self._network.is_watched(GatewayStatus):
                        self._network.tell(self._me, self.core.status(self._kernel.now))
                case Rest() if self.on_rest is not None:
                    self.on_rest()
                case _:
                    pass
        deadline = self.core.next_deadline()
        if deadline is not None and deadline < self._armed_at:
            self._armed_at = deadline
            self._kernel.at(deadline, self._expire, deadline)
