"""Decides which of the engines that share devices run: one that spans others, or those others, and never both. Pure.

Theory of operation. Whoever wants another way of using the devices asks for one engine of it. Those of the other way
drain and end first; then the engines that were asked for start. If one of them does not, the way before comes back: the
same engines as had been wanted then. So whoever asked may die, and a start may fail, and the devices are used all the
same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mesh.supervisor.processes.command import ChildCommand
from mesh.wire.status import ENDED, STARTED


@dataclass(slots=True)
class _Family:
    """An engine and those that it spans. ``before``: what was wanted before a change that is not over; empty: there is
    none. ``begun``: those of the wanted that have been seen to start in it.
    """

    spanning: str
    spanned: tuple[str, ...]
    wanted: set[str]
    before: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    @property
    def members(self) -> tuple[str, ...]:
        return self.spanning, *self.spanned

    def way_of(self, process: str) -> set[str]:
        """Return the engines that can run beside it."""
        return {self.spanning} if process == self.spanning else set(self.spanned)

    @property
    def way(self) -> set[str]:
        """Return the engines that can run beside those that are wanted."""
        return set().union(*map(self.way_of, self.wanted))


class SharedDevices:
    """``spans``: the engines that each of some spans. ``running``: those that run when it begins."""

    def __init__(self, spans: Mapping[str, Sequence[str]], running: Iterable[str] = ()) -> None:
        now = set(running)
        families = [
            _Family(name, tuple(others), {name} if name in now else set(others)) for name, others in spans.items()
        ]
        self._families = {member: family for family in families for member in family.members}

    def __repr__(self) -> str:
        return f"<SharedDevices { ({one.spanning: sorted(one.wanted) for one in self._families.values()}) }>"

    def ask(self, process: str, running: bool) -> bool:
        """Take an order for one process. Return whether it shares devices; the others are no concern of this."""
        family = self._families.get(process)
        if family is None:
            return False
        if not running:
            family.wanted.discard(process)
            family.before.discard(process)
            if not family.wanted:
                family.wanted, family.before = family.before, set()
        elif process in family.way_of(next(iter(family.wanted), process)):
            family.wanted.add(process)
        else:
            family.wanted, family.before, family.begun = {process}, family.wanted, set()
        return True

    def see(self, states: Mapping[str, str]) -> None:
        """Hear the states of all processes: call it at each change, lest a start that fails at once be missed."""
        for family in self._families.values():
            if not family.before:
                continue
            if any(one in family.begun and states.get(one) in ENDED for one in family.wanted):
                family.wanted, family.before, family.begun = family.before, set(), set()
                continue
            family.begun |= {
                one for one in family.wanted if states.get(one) in STARTED and self._is_free(family, states)
            }
            if all(states.get(one) == "running" for one in family.wanted) and self._is_free(family, states):
                family.before, family.begun = set(), set()

    def wants(self, states: Mapping[str, str]) -> dict[str, bool]:
        """Return, of each engine that shares devices, whether it is to run now."""
        return {
            member: member in family.wanted and self._is_free(family, states)
            for member, family in self._families.items()
        }

    @staticmethod
    def _is_free(family: _Family, states: Mapping[str, str]) -> bool:
        """Whether the engines of the other way have ended."""
        return all(states.get(one, "standby") in ENDED for one in set(family.members) - family.way)


def standing_by(commands: Sequence[ChildCommand], running: Iterable[str]) -> list[ChildCommand]:
    """The commands, with those on standby whose devices an engine has that runs and spans them."""
    now = set(running)
    taken = {other for command in commands if command.process in now for other in command.spans}
    return [replace(command, is_standby=True) if command.process in taken else command for command in commands]
