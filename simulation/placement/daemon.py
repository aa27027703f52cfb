"""The shell around the placement daemon in virtual time: what its process does with sockets, workers and a clock.

It decides with the product's `router.placement.daemon`. Searches are real ones; what is modelled is how long they take.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from mesh.wire.frames import Sender
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from router.placement.daemon import PlacementDaemon
from router.placement.effects import Abandon, Ask, Effect, Note, Tell
from router.placement.observe.requirements import PlacementError
from router.placement.search.evaluators import Evaluators
from router.placement.search.question import Answer, Question, SearchFailed, answer
from simulation.kernel import Kernel
from simulation.network import Network

HEARD = (GatewayStatus, SupervisorStatus)  # kinds of status, beside those of engines


class SearchResult(NamedTuple):
    """What came of a search, and how long it took."""

    answer: Answer | SearchFailed
    elapsed_s: float


class Search(Protocol):
    def __call__(self, question: Question) -> SearchResult: ...


@dataclass(frozen=True, slots=True)
class ModelledSearch:
    """The product's search, with ``num_batches`` of local search.

    It is taken to last as long as the question says of local search, and ``greedy_s`` before that.
    """

    evaluators: Evaluators
    num_batches: int = 4
    greedy_s: float = 5.0

    def __call__(self, question: Question) -> SearchResult:
        try:
            found: Answer | SearchFailed = answer(question, self.evaluators, lambda done: done >= self.num_batches)
        except PlacementError as error:
            found = SearchFailed(str(error))
        return SearchResult(found, self.greedy_s + question.improve_s)


class SimulatedPlacement:
    """One incarnation of the daemon. ``on_note`` hears what it has to say for its log, and when."""

    def __init__(
        self,
        me: Sender,
        daemon: PlacementDaemon,
        search: Search,
        kernel: Kernel,
        network: Network,
        heartbeat_s: float,
        on_note: Callable[[float, Note], None],
    ) -> None:
        self.daemon = daemon
        self._me = me
        self._search = search
        self._kernel = kernel
        self._network = network
        self._heartbeat_s = heartbeat_s
        self._on_note = on_note
        self._armed_at = inf
        network.subscribe(me.process, self.hear)
        for kind in HEARD:
            network.watch(me.process, kind, self.hear)

    def __repr__(self) -> str:
        return f"<SimulatedPlacement {self.daemon!r}>"

    def start(self, at: float) -> None:
        """Publish the first status at that time."""
        self._kernel.at(at, self._beat)
        self._rearm()

    def hear(self, sender: Sender, status: EngineStatus | GatewayStatus | SupervisorStatus) -> None:
        self.daemon.hear(sender, status, self._kernel.now)
        self._rearm()

    def _answer(self, number: int, found: Answer | SearchFailed) -> None:
        self._perform(self.daemon.answered(number, found, self._kernel.now))

    def _expire(self, when: float) -> None:
        if when == self._armed_at:
            self._armed_at = inf
            self._perform(self.daemon.expire(self._kernel.now))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Ask(question):
                    found = self._search(question)
                    self._kernel.after(found.elapsed_s, self._answer, question.number, found.answer)
                case Tell(engine, order):
                    self._network.send(self._me.process, engine, order)
                case Note():
                    self._on_note(self._kernel.now, effect)
                case Abandon():
                    pass  # its answer comes too late
        self._rearm()

    def _rearm(self) -> None:
        deadline = self.daemon.next_deadline()
        if deadline < self._armed_at:
            self._armed_at = deadline
            self._kernel.at(deadline, self._expire, deadline)

    def _beat(self) -> None:
        self._network.tell(self._me, self.daemon.status(self._kernel.now))
        self._kernel.after(self._heartbeat_s, self._beat)
