"""Engines that are killed, started again, and held up: what surrounds an engine process when things go wrong."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from bench.simulation.engine import SimulatedEngine
from bench.simulation.faulty_network import FaultyNetwork
from bench.simulation.kernel import Action, Kernel
from mesh.membership import Membership, Restarted, Stale
from mesh.messages import EngineMessage, EngineStatus, Sender
from mesh.topology.schema import Topology

CATCH_UP_S = 0.1  # after a process was held up itself, as engines.process has it


class Life(Kernel):
    """The kernel as one life of a process sees it: nothing happens to it after its end, nor while it is held up."""

    __slots__ = ("_ended", "_frozen_until", "_kernel")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._ended = False
        self._frozen_until = -inf

    @property
    def now(self) -> float:  # type: ignore[override]
        return self._kernel.now

    def random(self, component: str) -> Random:
        return self._kernel.random(component)

    def at(self, when: float, action: Action, *arguments: Any) -> None:
        self._kernel.at(when, self.happen, action, *arguments)

    def after(self, delay_s: float, action: Action, *arguments: Any) -> None:
        self._kernel.after(delay_s, self.happen, action, *arguments)

    def happen(self, action: Action, *arguments: Any) -> None:
        """Now, or when the process goes on, or never."""
        if self._ended:
            return
        if self.now < self._frozen_until:
            self._kernel.at(self._frozen_until, self.happen, action, *arguments)
        else:
            action(*arguments)

    def end(self) -> None:
        self._ended = True

    def freeze(self, until: float) -> None:
        self._frozen_until = max(self._frozen_until, until)


class Watch:
    """Notices that peers of one engine died, as `engines.process` does; messages of lives that are over stop here."""

    def __init__(
        self,
        me: Sender,
        engine: SimulatedEngine,
        life: Life,
        network: FaultyNetwork,
        lease_s: float,
        gateways: Collection[str],
    ) -> None:
        self._me = me
        self._engine = engine
        self._life = life
        self._network = network
        self._gateways = gateways
        self._membership = Membership(lease_s)
        self._armed_at = inf
        network.hear(me.process, lambda sender, message: life.happen(self._receive, sender, message))
        network.notice(me.process, lambda sender, status: life.happen(self._notice, sender, status))

    def _receive(self, sender: Sender, message: EngineMessage) -> None:
        if self._observe(sender):
            self._engine.receive(sender.process, message)

    def _notice(self, sender: Sender, status: EngineStatus | None) -> None:
        if self._observe(sender) and status is not None:
            self._engine.observe(sender, status)

    def _observe(self, sender: Sender) -> bool:
        """A sign of life; False if it is of a life that is over."""
        observation = self._membership.observe(sender, self._life.now)
        if isinstance(observation, Restarted):
            self._network.forget(self._me.process, sender.process)
            self._engine.lose_peer(sender.process)
        self._rearm()
        return not isinstance(observation, Stale)

    def _rearm(self) -> None:
        if self._armed_at == inf:
            self._arm(self._membership.next_deadline())

    def _arm(self, deadline: float | None) -> None:
        self._armed_at = inf if deadline is None else deadline
        if deadline is not None:
            self._life.at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._life.now
        if now - self._armed_at > CATCH_UP_S:
            self._arm(now + CATCH_UP_S)
            return
        for lost in self._membership.expire(now):
            if lost.sender.process not in self._gateways:
                self._network.forget(self._me.process, lost.sender.process)
            self._engine.lose_peer(lost.sender.process)
        self._arm(self._membership.next_deadline())


@dataclass(slots=True)
class _Running:
    me: Sender
    life: Life
    engine: SimulatedEngine


class Mortal:
    """One engine process over its lives. ``on_change`` hears of each new engine, and None when there is none."""

    def __init__(
        self,
        name: str,
        make: Callable[[Sender, Kernel], SimulatedEngine],
        kernel: Kernel,
        network: FaultyNetwork,
        topology: Topology,
        on_change: Callable[[str, SimulatedEngine | None], None],
    ) -> None:
        self._name = name
        self._make = make
        self._kernel = kernel
        self._network = network
        self._lease_s = topology.timing.lease_s
        self._gateways = frozenset(spec.id for spec in topology.gateways)
        self._on_change = on_change
        self._num_lives = 0
        self._running: _Running | None = None
        self._be_born()

    @property
    def is_alive(self) -> bool:
        return self._running is not None

    def kill(self) -> None:
        """All that it holds is gone."""
        assert self._running is not None, f"{self._name} is dead already"
        self._running.life.end()
        self._running = None
        self._network.go_down(self._name)
        self._on_change(self._name, None)

    def restart(self) -> None:
        """A new life, which knows nothing of the last one."""
        assert self._running is None, f"{self._name} lives"
        self._be_born().start(self._kernel.now)

    def hang(self, for_s: float) -> None:
        """It is held up: what happens to it waits."""
        assert self._running is not None, f"{self._name} is dead"
        self._running.life.freeze(self._kernel.now + for_s)

    def _be_born(self) -> SimulatedEngine:
        self._num_lives += 1
        me, life = Sender(self._name, self._num_lives), Life(self._kernel)
        engine = self._make(me, life)
        Watch(me, engine, life, self._network, self._lease_s, self._gateways)
        self._running = _Running(me, life, engine)
        self._on_change(self._name, engine)
        self._network.come_up(me)
        return engine
