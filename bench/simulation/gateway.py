"""The shell around one gateway's dispatcher in virtual time: what `router.router` does with sockets and a clock."""

from collections.abc import Iterable
from math import inf

from bench.simulation.kernel import Kernel
from bench.simulation.network import Network
from mesh.messages import EngineAnswer, EngineStatus, RequestSpec, Sender
from router.dispatcher import Dispatcher
from router.effects import Deliver, Effect, Fail, Forget, Place, Send
from router.generation import Overloaded
from router.ledger import Ledger

CATCH_UP_S = 0.05  # after a gateway was held up itself, as router.router has it


class SimulatedGateway:
    """Writes what becomes of its requests to the ledger."""

    def __init__(self, name: str, dispatcher: Dispatcher, kernel: Kernel, network: Network, ledger: Ledger) -> None:
        self.name = name
        self.dispatcher = dispatcher
        self._kernel = kernel
        self._network = network
        self._ledger = ledger
        self._armed_at = inf
        network.connect(name, self.receive)
        network.subscribe(name, self.observe)

    def __repr__(self) -> str:
        return f"<SimulatedGateway {self.name} {self.dispatcher!r}>"

    def submit(self, spec: RequestSpec) -> None:
        """A request arrives; the ledger knows it already."""
        try:
            effects = self.dispatcher.submit(spec, self._kernel.now)
        except Overloaded as error:
            self._ledger.failed(spec.id, error, self._kernel.now)
        else:
            self._carry_out(effects)

    def cancel(self, request: str) -> None:
        """Its client goes away; the ledger knows it already."""
        self._carry_out(self.dispatcher.cancel(request, self._kernel.now))

    def receive(self, sender: str, message: EngineAnswer) -> None:
        self._carry_out(self.dispatcher.receive(sender, message, self._kernel.now))

    def observe(self, sender: Sender, status: EngineStatus) -> None:
        self._carry_out(self.dispatcher.observe(sender, status, self._kernel.now))

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
                case Deliver(request, batch):
                    self._ledger.delivered(request, batch, self._kernel.now)
                case Send(to, message):
                    self._network.send(self.name, to, message)
                case Place(request, placement):
                    self._ledger.placed(request, placement)
                case Fail(request, error):
                    self._ledger.failed(request, error, self._kernel.now)
                case Forget(engine):
                    self._network.forget(self.name, engine)
        deadline = self.dispatcher.next_deadline()
        if deadline is not None and deadline < self._armed_at:
            self._arm(deadline)
