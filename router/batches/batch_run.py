"""One batch, from its validation to its output files."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec
import structlog

from router.api.errors import ApiError
from router.api.http.callers import Caller
from router.api.http.disconnect import first_of
from router.batches.answering import BatchCallers, HandlerAnswer, LineAnswerer, line_answer, unanswered
from router.batches.lines import NumberedLine, check_file, requests_of
from router.batches.records import (
    KEPT_S,
    BatchStatus,
    FileFault,
    FilePurpose,
    LineAnswer,
    StoredBatch,
    StoredFile,
)
from router.batches.store import BatchStore, ClaimLostError, StoreFullError, write_answers
from router.batches.stored import StoredBatches
from router.generation import Overloaded, RouterError

WATCH_S: Final = 0.5
READ_AHEAD: Final = 64  # lines
AHEAD: Final = 8  # lines that may wait in the gateway for an engine
PACE_S: Final = 0.02  # between two looks whether fewer wait
RETRY_S: Final = 1.0  # after an answer that says: not now
MAX_ATTEMPTS: Final = 3  # where it is the server's fault
MAX_UNKEPT: Final = 256  # answers that are not in the store yet
EXPIRED: Final = "batch_expired", "The batch's completion_window was over before this request was answered."

log = structlog.get_logger()


class Feeding:
    """How many lines may be under way, of all batches of a gateway together."""

    def __init__(self, answerer: LineAnswerer, most: int) -> None:
        self._answerer = answerer
        self._most = most
        self._num_in_flight = 0
        self._turn = asyncio.Lock()

    async def begin(self, line: Coroutine[Any, Any, None], tasks: asyncio.TaskGroup) -> None:
        """Begin a line once one more may be fed: one after the other, so batches take turns."""
        try:
            async with self._turn:
                await asyncio.sleep(0)  # the one before is with the router by now
                while not self._has_room:  # noqa: ASYNC110 - the router does not tell when fewer wait
                    await asyncio.sleep(PACE_S)
        except BaseException:
            line.close()
            raise
        self._num_in_flight += 1
        tasks.create_task(line).add_done_callback(self._end)

    @property
    def _has_room(self) -> bool:
        return self._num_in_flight < self._most and self._answerer.num_waiting() < AHEAD

    def _end(self, line: asyncio.Task[None]) -> None:
        self._num_in_flight -= 1


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What the runs of one gateway share. ``name``: who claims batches."""

    stored: StoredBatches
    answerer: LineAnswerer
    callers: BatchCallers
    wall_clock: Callable[[], float]
    name: str
    feeding: Feeding


class BatchRun:
    """A run of one batch that was claimed. It may be cancelled at any time, and another one go on."""

    def __init__(self, batch: StoredBatch, parts: RunnerParts) -> None:
        self._batch = batch
        self._parts = parts
        self._unkept: list[LineAnswer] = []
        self._has_unkept, self._has_room = asyncio.Event(), asyncio.Event()

    def __repr__(self) -> str:
        return f"<BatchRun {self._batch.id} {self._batch.status}>"

    async def run(self) -> None:
        """Go on from wherever it stands to its end. A claim that is lost ends it silently."""
        try:
            while not self._batch.status.is_over:
                await self._go_on()
        except Exception as error:
            await self._break_off(first_of(error))

    async def _break_off(self, error: BaseException) -> None:
        if isinstance(error, StoreFullError):
            await self._fail(FileFault("store_full", str(error)))
        elif isinstance(error, ClaimLostError):
            log.warning("another gateway runs the batch now", batch=self._batch.id)
        elif isinstance(error, RouterError):
            log.warning("a batch rests: the store does not answer", batch=self._batch.id)  # it is claimed anew later
        else:
            log.error("a batch failed", batch=self._batch.id, exc_info=error)
            await self._fail(FileFault("internal_error", "the gateway failed; its log has more"))

    async def _go_on(self) -> None:
        match self._batch.status:
            case BatchStatus.VALIDATING:
                await self._validate()
            case BatchStatus.IN_PROGRESS:
                await self._answer_all()
            case BatchStatus.CANCELLING:
                await self._becomes(BatchStatus.FINALIZING, ends_as=BatchStatus.CANCELLED)
            case _:
                await self._finish()

    async def _change(self, change: Callable[[StoredBatch], StoredBatch]) -> None:
        name, batch_id = self._parts.name, self._batch.id
        self._batch = await self._parts.stored.run(lambda store: store.change(batch_id, change, name))

    async def _becomes(self, status: BatchStatus, **changes: object) -> None:
        now = self._parts.wall_clock()
        await self._change(lambda batch: batch.becomes(status, now, **changes))

    async def _fail(self, *faults: FileFault) -> None:
        with suppress(ClaimLostError, RouterError):
            await self._becomes(BatchStatus.FAILED, errors=faults)

    # --- the file -----------------------------------------------------------------------------------------------------

    async def _validate(self) -> None:
        path = await self._parts.stored.run(lambda store: store.path_of(self._batch.input_file))
        try:
            total, faults = await asyncio.to_thread(check_file, path, self._batch.endpoint)
        except OSError as error:
            total, faults = 0, [FileFault("invalid_file", f"the file cannot be read: {error.strerror}")]
        if faults:
            await self._fail(*faults)
            return
        now = self._parts.wall_clock()

        def begun(batch: StoredBatch) -> StoredBatch:
            if batch.status is not BatchStatus.VALIDATING:
                return msgspec.structs.replace(batch, total=total)
            return batch.becomes(BatchStatus.IN_PROGRESS, now, total=total)

        await self._change(begun)

    async def _unanswered(self) -> Iterator[NumberedLine]:
        batch_id, input_file = self._batch.id, self._batch.input_file
        answered = await self._parts.stored.run(lambda store: store.answered(batch_id))
        path = await self._parts.stored.run(lambda store: store.path_of(input_file))
        return requests_of(path, answered)

    # --- its lines ----------------------------------------------------------------------------------------------------

    async def _answer_all(self) -> None:
        """All that have no answer, until the batch is cancelled or its time is over."""
        feeding = asyncio.create_task(self._feed_all())
        try:
            while not feeding.done() and await self._goes_on():
                await asyncio.wait({feeding}, timeout=WATCH_S)
            if feeding.done():
                feeding.result()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        await self._keep_rest()
        await self._goes_on()
        if self._batch.status is BatchStatus.IN_PROGRESS:
            is_late = self._batch.num_answered < self._batch.total
            ends_as = BatchStatus.EXPIRED if is_late else BatchStatus.COMPLETED
            await self._becomes(BatchStatus.FINALIZING, ends_as=ends_as)

    async def _goes_on(self) -> bool:
        """Whether it is not cancelled and has time left; its counts are those of the store."""
        batch_id = self._batch.id
        try:
            known = await self._parts.stored.run(lambda store: store.batch(batch_id))
        except Overloaded:
            return True  # the store will answer again
        if known is None:
            raise ClaimLostError(batch_id)
        self._batch = known
        return known.status is BatchStatus.IN_PROGRESS and self._parts.wall_clock() < known.expires_at

    async def _feed_all(self) -> None:
        lines = await self._unanswered()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep_all())
            async with asyncio.TaskGroup() as answering:
                while some := await asyncio.to_thread(lambda: list(islice(lines, READ_AHEAD))):
                    for line in some:
                        await self._parts.feeding.begin(self._answer(line), answering)
            keeping.cancel()
        await self._keep_rest()
        await self._goes_on()

    async def _answer(self, line: NumberedLine) -> None:
        answer = await self._answer_of(line)
        while len(self._unkept) >= MAX_UNKEPT:
            self._has_room.clear()
            await self._has_room.wait()
        self._unkept.append(line_answer(self._batch.id, line, answer))
        self._has_unkept.set()

    async def _answer_of(self, line: NumberedLine) -> HandlerAnswer:
        num_attempts = 0
        while True:
            try:
                answer = await self._parts.answerer.answer(self._batch.endpoint, line.body, self._caller())
            except ApiError as error:
                return HandlerAnswer(error.status, error.body(), "")
            num_attempts += not answer.is_for_later
            if not answer.is_for_later and (not answer.is_servers_fault or num_attempts >= MAX_ATTEMPTS):
                return answer
            await asyncio.sleep(RETRY_S)

    def _caller(self) -> Caller:
        left_s = max(1.0, self._batch.expires_at - self._parts.wall_clock())
        return self._parts.callers(self._batch.key, self._batch.tenant, left_s)

    async def _keep_all(self) -> None:
        """Keep all answers that there are in one transaction, again and again."""
        while True:
            await self._has_unkept.wait()
            self._has_unkept.clear()
            try:
                await self._keep()
            except Overloaded:
                await asyncio.sleep(RETRY_S)
                self._has_unkept.set()

    async def _keep_rest(self) -> None:
        """Keep what is left when no more comes."""
        while self._unkept:
            try:
                await self._keep()
            except Overloaded:
                await asyncio.sleep(RETRY_S)

    async def _keep(self) -> None:
        """Several may come here: what is kept twice counts once."""
        batch_id, name, answers = self._batch.id, self._parts.name, self._unkept[:]
        if answers:
            await self._parts.stored.run(partial(_add_answers, batch_id=batch_id, runner=name, answers=answers))
            kept = {answer.number for answer in answers}
            self._unkept = [answer for answer in self._unkept if answer.number not in kept]
            self._has_room.set()

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Write what was answered to files, and what was not answered in time."""
        late: list[bytes] = []
        if self._batch.ends_as is BatchStatus.EXPIRED:
            lines = await self._unanswered()
            batch_id = self._batch.id
            late = await asyncio.to_thread(lambda: [unanswered(batch_id, line, *EXPIRED).text for line in lines])
        now = int(self._parts.wall_clock())
        output, errors = self._file("output", now), self._file("errors", now)
        written = await self._parts.stored.run(lambda store: [store.path_of(one.id) for one in (output, errors)])
        store = await self._parts.stored.run(lambda store: store)
        sizes = [
            await asyncio.to_thread(write_answers, store, self._batch.id, written[0], (), is_error=False),
            await asyncio.to_thread(write_answers, store, self._batch.id, written[1], late, is_error=True),
        ]
        files = [
            msgspec.structs.replace(file, num_bytes=size)
            for file, size in zip((output, errors), sizes, strict=True)
            if size
        ]
        await self._end(files, len(late), output.id if sizes[0] else None, errors.id if sizes[1] else None)

    async def _end(self, files: list[StoredFile], num_late: int, output_id: str | None, error_id: str | None) -> None:
        batch_id, name, now = self._batch.id, self._parts.name, self._parts.wall_clock()

        def ended(batch: StoredBatch) -> StoredBatch:
            return batch.becomes(
                batch.ends_as,
                now,
                output_file=output_id,
                error_file=error_id,
                failed=batch.failed + num_late,
            )

        await self._parts.stored.run(lambda store: store.finish(batch_id, name, files, ended))
        found = await self._parts.stored.run(lambda store: store.batch(batch_id))
        assert found is not None, "it was just written"
        self._batch = found
        log.info("a batch has ended", batch=batch_id, status=str(found.status), completed=found.completed)

    def _file(self, kind: str, now: int) -> StoredFile:
        """Of one batch it always has the same name: a run that broke off leaves nothing."""
        batch = self._batch
        name = f"{batch.id}_{kind}.jsonl"
        return StoredFile(f"file-{batch.id[6:]}-{kind}", batch.owner, name, FilePurpose.OUTPUT, 0, now, now + KEPT_S)


def _add_answers(store: BatchStore, batch_id: str, runner: str, answers: list[LineAnswer]) -> None:
    store.add_answers(batch_id, runner, answers)
