"""Decides what becomes of the processes that run already when a supervisor takes over. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mesh.addresses import owner_of
from mesh.supervisor.processes.command import ENGINE, GATEWAY, PLACEMENT, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.supervisor.shared_devices import standing_by

REPLACED = (ENGINE, GATEWAY, PLACEMENT)  # kinds in the order in which they are replaced


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What a supervisor finds running, and what it is to do about it.

    ``current``: by name in the topology, the incarnation that counts. ``leaving``: those that have a successor.

    ``outdated``: names of those that were started with something else than what they would be started with now, in the
    order in which they are to be replaced.
    ``removed``: those that the topology has no more. ``missing``: those that do not run, and are to.
    """

    current: dict[str, PidRecord]
    leaving: tuple[PidRecord, ...]
    outdated: tuple[str, ...]
    removed: tuple[PidRecord, ...]
    missing: tuple[str, ...]

    @property
    def changes_anything(self) -> bool:
        return bool(self.outdated or self.removed or self.missing)

    def lines(self) -> Iterator[str]:
        """Return what will be done, a line for each process of which something is."""
        if kept := [name for name in self.current if name not in self.outdated]:
            yield f"{', '.join(kept)}: running already, and kept as {'they are' if len(kept) > 1 else 'it is'}"
        for name in self.outdated:
            yield f"{name}: will be replaced"
        for name in self.missing:
            yield f"{name}: will be started"
        for record in self.removed:
            yield f"{record.process}: not in the topology any more; will drain and end"


def make_plan(commands: Sequence[ChildCommand], found: Iterable[PidRecord], *, replace_all: bool = False) -> StartPlan:
    """Decide what becomes of the processes that were found. ``commands``: all processes of this host. ``found``: those
    of this host that live.
    """
    found = list(found)
    commands = standing_by(commands, [record.process for record in found])
    wanted = {command.process: command for command in commands}
    current: dict[str, PidRecord] = {}
    leaving, removed = [], []
    for record in sorted(found, key=_age, reverse=True):
        owner = owner_of(record.process)
        if owner not in wanted:
            removed.append(record)
        elif owner in current:
            leaving.append(record)
        else:
            current[owner] = record
    ordered = {name: current[name] for name in wanted if name in current}
    outdated = [name for name in ordered if replace_all or ordered[name].digest != wanted[name].digest]
    outdated.sort(key=lambda name: REPLACED.index(wanted[name].kind))
    missing = [name for name, command in wanted.items() if name not in current and not command.is_standby]
    return StartPlan(ordered, tuple(leaving), tuple(outdated), tuple(removed), tuple(missing))


def _age(record: PidRecord) -> int:
    """Clock ticks of the machine when it started: a successor counts, and not the one that it succeeds."""
    return int(record.started.rpartition("/")[2])
