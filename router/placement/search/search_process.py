"""Searches in a process of their own, with a low priority: serving does not notice them, and they can be ended.

It is started before it is asked anything: its imports take a second of a core, and many where others want the core.
Questions go to the standard input of ``python -m router.placement.search.search_process``, one after the other,
answers come from the standard output, as a length of eight bytes and MessagePack. The process leads a group, so that
it ends with its workers; when its input is closed, because nobody waits any more or whoever did is dead, they end at
once.
"""

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import msgspec

from mesh.errors import UserError
from router.placement.search.evaluators import Evaluators, load_evaluators
from router.placement.search.question import Answer, Question, SearchFailed, answer, time_is_over

LENGTH_BYTES = 8
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Reply:
    """One of them is None."""

    answer: Answer | None
    failed: SearchFailed | None = None


class Searcher:
    """One search at a time. The process is there from the first `start` or `search` until `close`."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._process: Process | None = None
        self._is_free = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Searcher {self._process!r}>"

    async def start(self) -> None:
        """Start ahead of the first search, which is then sooner over. Not needed."""
        async with self._is_free:
            await self._running()

    async def search(self, question: Question) -> Answer | SearchFailed:
        """Cancel it to end the search, and the process with it."""
        async with self._is_free:
            try:
                reply = await self._ask(await self._running(), question)
            except BaseException:
                await self._end()
                raise
            if reply.answer is None:
                await self._end()
        return reply.answer or reply.failed or SearchFailed("it has no answer")

    async def close(self) -> None:
        async with self._is_free:
            await self._end()

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            command = (sys.executable, "-m", "router.placement.search.search_process", str(self._num_workers))
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, start_new_session=True
            )
        return self._process

    async def _ask(self, process: Process, question: Question) -> Reply:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(_framed(msgspec.msgpack.encode(question)))
            size = await process.stdout.readexactly(LENGTH_BYTES)
            return msgspec.msgpack.decode(await process.stdout.readexactly(int.from_bytes(size)), type=Reply)
        except asyncio.IncompleteReadError:
            return Reply(None, SearchFailed(f"its process ended with code {await process.wait()}"))
        except OSError as error:
            return Reply(None, SearchFailed(f"its process cannot be reached: {error}"))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES) + body


# --- the process ------------------------------------------------------------------------------------------------------


def main(num_workers: int) -> None:
    os.nice(NICENESS)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed comes between
    questions: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_hear, args=(questions,), daemon=True).start()
    evaluators = _loaded(num_workers)
    while True:
        question = msgspec.msgpack.decode(questions.get(), type=Question)
        replies.write(_framed(msgspec.msgpack.encode(_reply(question, evaluators))))
        replies.flush()


def _hear(questions: SimpleQueue[bytes]) -> None:
    """Until the input is closed, and everything ends."""
    while (size := _read(LENGTH_BYTES)) and (body := _read(int.from_bytes(size))):
        questions.put(body)
    os.killpg(0, signal.SIGKILL)


def _read(size: int) -> bytes:
    """Nothing at the end. From the descriptor itself: who waits for input must not hold a lock of Python's."""
    body = b""
    while len(body) < size:
        part = os.read(0, size - len(body))
        if not part:
            return b""
        body += part
    return body


def _loaded(num_workers: int) -> Evaluators | UserError:
    try:
        return load_evaluators(num_workers)
    except UserError as error:
        return error


def _reply(question: Question, evaluators: Evaluators | UserError) -> Reply:
    if isinstance(evaluators, UserError):
        return Reply(None, SearchFailed(str(evaluators)))
    try:
        return Reply(answer(question, evaluators, time_is_over(question.improve_s)))
    except UserError as error:
        return Reply(None, SearchFailed(str(error)))
    except Exception as error:
        return Reply(None, SearchFailed(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main(int(sys.argv[1]))
