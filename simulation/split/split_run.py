"""One run as several jobs, each of which simulates a stretch of its time, and what they find as one run again."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from heapq import merge
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec

from mesh.errors import UserError
from router.history.records import Record, encode_line
from simulation.command.outputs import Outputs
from simulation.experiment import NOTHING_ARRIVES, Experiment
from simulation.garbage import leaving_nothing_behind, rare_collections
from simulation.loads.play import most_turns
from simulation.quiet import quiet_engines
from simulation.reports.packed import PackedRecords
from simulation.reports.split import Edge, Split
from simulation.reports.summary import Summary
from simulation.split.stretches import Stretch, cut


@dataclass(slots=True)
class StretchRecords:
    """What a stretch counted, in order of ending. ``num_in_flight``: when it began to count."""

    records: PackedRecords = field(default_factory=PackedRecords)
    num_in_flight: int = 0


@dataclass(frozen=True, slots=True)
class StretchJob:
    """One stretch of a run. Its records go to the file ``lines``, too, if there is one."""

    run: Experiment
    stretch: Stretch
    lines: Path | None = None

    @property
    def name(self) -> str:
        return self.run.name

    def runs(self, on_share: Callable[[float], None] | None = None) -> list[StretchRecords]:
        """Simulate it, as one of several jobs."""
        found, stretch = StretchRecords(), self.stretch
        with nullcontext() if self.lines is None else self.lines.open("wb") as lines:

            def take(record: Record) -> None:
                if not stretch.counts(record):
                    found.num_in_flight += _is_in_flight(record, stretch.from_s)
                    return
                found.records.append(record)
                if lines is not None:
                    lines.write(encode_line(record))
                if on_share is not None:
                    on_share(len(found.records) / stretch.num_counted)

            with leaving_nothing_behind(), rare_collections(), quiet_engines():
                self._play(take, found.records)
        return [found]

    def _play(self, take: Callable[[Record], None], counted: PackedRecords) -> None:
        simulation = self.run.simulation(_seed(self.run.seed, self.stretch.number), self.stretch.begins_s)

        def take_until_all_have_ended(record: Record) -> None:
            take(record)
            if len(counted) == self.stretch.num_counted:
                simulation.stop()

        simulation.play(self.run.service, self.stretch.play(self.run.played()), take_until_all_have_ended)


@dataclass(frozen=True, slots=True)
class SplitRun:
    """One run, cut into stretches with a lead of ``lead_s`` each."""

    run: Experiment
    stretches: Sequence[Stretch]
    lead_s: float

    @classmethod
    def of(cls, run: Experiment, number: int, lead_s: float) -> "SplitRun":
        """Cut it, or say in a `UserError` why it cannot be cut."""
        if reason := _whole_because(run):
            raise UserError(f"--split: {reason}; leave the option out")
        arrivals = array("d", (due.at_s for due in run.played().arrivals()))
        if not arrivals:
            raise UserError(NOTHING_ARRIVES)
        return cls(run, cut(arrivals, number, lead_s), lead_s)

    @contextmanager
    def jobs(self) -> Iterator[list[StretchJob]]:
        """Return its stretches as jobs, whose files are there until the context ends."""
        with nullcontext() if self.run.outputs is None else _parts_folder(self.run.outputs) as parts:
            yield [
                StretchJob(self.run, one, None if parts is None else Path(parts, f"{one.number}.jsonl"))
                for one in self.stretches
            ]

    def join(self, jobs: Sequence[StretchJob], found: Sequence[StretchRecords]) -> Summary:
        """Return the summary of the whole run, and write its files. ``found`` is what the ``jobs`` found."""
        records = PackedRecords()
        for part in found:
            records.extend(part.records)
        if self.run.outputs is not None:
            _join_files(self.run.outputs, [job.lines for job in jobs if job.lines is not None])
        return replace(self.run.summary(records), split=Split(len(self.stretches), self.lead_s, self.edges(found)))

    def edges(self, found: Sequence[StretchRecords]) -> tuple[Edge, ...]:
        """Return how many requests were in flight where one stretch ends, and where the next one goes on."""
        return tuple(
            Edge(
                stretch.from_s,
                sum(_is_in_flight(record, stretch.from_s) for record in before.records),
                after.num_in_flight,
            )
            for stretch, before, after in zip(self.stretches[1:], found[:-1], found[1:], strict=True)
        )


def _seed(whole: int, number: int) -> int:
    """What is random in one stretch is not what was random in another."""
    return whole if number == 0 else Random(f"{whole}/stretch-{number}").getrandbits(32)


def _is_in_flight(record: Record, at_s: float) -> bool:
    return record.arrived_s < at_s < _ended_s(record)


def _ended_s(record: Record) -> float:
    return record.arrived_s + (record.e2e_s or 0.0)


def _whole_because(run: Experiment) -> str | None:
    """Why all of it has to be one piece."""
    if run.load.num_clients_at(run.level) is not None:
        return "what arrives in a closed loop depends on the answers before"
    if run.load.has_turns or most_turns(run.load.pool) > 1:
        return "later turns of conversations arrive when those before them have been answered"
    if run.faults:
        return "faults leave traces, of which a later stretch would know nothing"
    if run.topology.placement is not None:
        return "the placement daemon decides by what it saw before, which a later stretch would not know"
    if run.topology.scaling is not None:
        return "how many engines run depends on what came before, which a later stretch would not know"
    return None


# --- files ------------------------------------------------------------------------------------------------------------


def _parts_folder(outputs: Outputs) -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix=".stretches-", dir=outputs.folder, ignore_cleanup_errors=True)


def _join_files(outputs: Outputs, parts: Sequence[Path]) -> None:
    """Write the files of the whole run, in order of ending. They are there when they are complete."""
    with _parts_folder(outputs) as made:
        whole = replace(outputs, folder=Path(made))
        with ExitStack() as stack, whole.record_files() as files:
            lines = [stack.enter_context(part.open("rb")) for part in parts]
            decode = msgspec.json.Decoder(Record).decode
            for record in merge(*(map(decode, part) for part in lines), key=_ended_s):
                files.add(record)
        for path in Path(made).iterdir():
            path.replace(outputs.folder / path.name)
