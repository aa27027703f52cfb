"""The shell around one gateway's dispatcher in virtual time: what `router.gateway` does with sockets and a clock."""

from collections.abc import Iterable
from math import inf

from mesh.topology.schema import GatewaySpec
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineAnswer
from mesh.wire.placement import PlacementStatus
from mesh.wire.requests import RequestSpec
from mesh.wire.status import EngineStatus, GatewayStatus
from router.effects import Deliver, Effect, Fail, Forget, Send, SetRoute
from router.generation import Overloaded, RouterError
from router.history.marks import MarkKeeper
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from router.requests.dispatcher import Dispatcher
from simulation.kernel import Kernel
from simulation.network import Network

CATCH_UP_S = 0.05  # after a gateway was held up itself, as router.gateway has it


class SimulatedGateway:
    """One life of a gateway. ``tallies`` read the timelines of its dispatcher.

    ``watches_others``: it hears of other gateways. Nobody's policy asks for them but one that packs in groups.
    """

    def __init__(
        self,
        me: Sender,
        spec: GatewaySpec,
        dispatcher: Dispatcher,
        kernel: Kernel,
        network: Network,
        tallies: Tallies,
        heartbeat_s: float,
        *,
        watches_others: bool = False,
    ) -> None:
        self.dispatcher = dispatcher
        self.watches_others = watches_others
        self._me = me
        self._spec = spec
        self._kernel = kernel
        self._network = network
        self._heartbeat_s = heartbeat_s
        self._tallies = tallies
        self._marks = MarkKeeper()
        self._num_statuses = 0
        self._armed_at = inf
        network.connect(me.process, self.receive)
        network.subscribe(me.process, self.observe)
        network.watch(me.process, PlacementStatus, self.hear)
        if watches_others:
            network.watch(me.process, GatewayStatus, self.hear_gateway)

    def __repr__(self) -> str:
        return f"<SimulatedGateway {self._me.process} {self.dispatcher!r}>"

    def start(self, at: float) -> None:
        """Publish the first status at that time, if anybody hears it."""
        if self._network.is_watched(GatewayStatus):
            self._kernel.at(at, self._beat)

    def arrived(self, spec: RequestSpec) -> RequestTimeline:
        """A request reaches the host; the gateway takes it up at once, or when it goes on."""
        return self.dispatcher.timelines.arrived(spec, self._kernel.now)

    def submit(self, spec: RequestSpec, timeline: RequestTimeline, tenant: str = "") -> None:
        """Take up a request that arrived."""
        try:
            effects = self.dispatcher.submit(spec, timeline, self._kernel.now, tenant)
        except Overloaded as error:
            self.dispatcher.timelines.failed(timeline, error, self._kernel.now)
        else:
            self._carry_out(effects)

    def died(self, error: RouterError) -> None:
        """It will be heard of no more: its requests have failed."""
        for timeline in self.dispatcher.timelines.open:
            self.dispatcher.timelines.failed(timeline, error, self._kernel.now)

    def cancel(self, request: str) -> None:
        """Its client goes away."""
        self._carry_out(self.dispatcher.cancel(request, self._kernel.now))

    def receive(self, sender: str, message: EngineAnswer) -> None:
        self._carry_out(self.dispatcher.receive(sender, message, self._kernel.now))

    def observe(self, sender: Sender, status: EngineStatus) -> None:
        self._carry_out(self.dispatcher.observe(sender, status, self._kernel.now))

    def hear_gateway(self, sender: Sender, status: GatewayStatus) -> None:
        """What a gateway says, perhaps this one."""
        if sender.process != self._me.process:
            self.dispatcher.hear_gateway(sender, status, self._kernel.now)

    def hear(self, sender: Sender, status: PlacementStatus) -> None:
        """What the placement daemon says, to be repeated to its successor."""
        self._marks.hear(status, self._tallies.read(), self._kernel.now)

    def _expire(self, when: float) -> None:
        if when != self._armed_at:
            return
        now = self._kernel.now
        if now - when > CATCH_UP_S:
            self._arm(now + CATCH_UP_S)
        else:
            self._armed_at = inf
            self._carry_out(self.dispatcher.expire(now))

    def _arm(self, when: float) -> None:
        self._armed_at = when
        self._kernel.at(when, self._expire, when)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._network.send(self._me.process, to, message)
                case Forget(engine):
                    self._network.forget(self._me.process, engine)
                case Deliver() | SetRoute() | Fail():
                    """Clients are not simulated: what they would see is in the timelines."""
        deadline = self.dispatcher.next_deadline()
        if deadline is not None and deadline < self._armed_at:
            self._arm(deadline)

    # --- statuses -----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._network.tell(self._me, self._status())
        self._kernel.after(self._heartbeat_s, self._beat)

    def _status(self) -> GatewayStatus:
        self._num_statuses += 1
        return GatewayStatus(
            seq=self._num_statuses,
            state=ProcessState.READY,
            host=self._spec.host,
            pid=0,
            url="",
            num_requests=self.dispatcher.num_requests,
            num_waiting=self.dispatcher.num_waiting,
            services=self._tallies.read(),
            wanted=self.dispatcher.wanted(self._kernel.now),
            mark=self._marks.mark(self._kernel.now),
        )
