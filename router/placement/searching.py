"""A search in processes of its own, with a low priority: serving does not notice it, and it can be ended.

A question goes to the standard input of ``python -m router.placement.searching``, its answer comes from the standard
output, as a length of eight bytes and MessagePack. The process leads a group, so that it ends with its workers; when
its input is closed, because nobody waits any more or whoever did is dead, they end at once.
"""

import asyncio
import os
import signal
import sys
import threading
from contextlib import closing, suppress
from dataclasses import dataclass

import msgspec

from mesh.errors import UserError
from router.placement.evaluators import load_evaluators
from router.placement.question import Answer, Question, SearchFailed, answer, time_is_over

LENGTH_BYTES = 8
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Reply:
    """One of them is None."""

    answer: Answer | None
    failed: SearchFailed | None = None


async def search_beside(question: Question, num_workers: int) -> Answer | SearchFailed:
    """Cancel it to end the search."""
    command = (sys.executable, "-m", "router.placement.searching", str(num_workers))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(_framed(msgspec.msgpack.encode(question)))
        size = await process.stdout.readexactly(LENGTH_BYTES)
        reply = msgspec.msgpack.decode(await process.stdout.readexactly(int.from_bytes(size)), type=Reply)
    except asyncio.IncompleteReadError:
        return SearchFailed(f"its process ended with code {await process.wait()}")
    except OSError as error:
        return SearchFailed(f"its process cannot be reached: {error}")
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return reply.answer or reply.failed or SearchFailed("it has no answer")


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES) + body


# --- the process ------------------------------------------------------------------------------------------------------


def main(num_workers: int) -> None:
    os.nice(NICENESS)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed comes between
    size = int.from_bytes(_read(LENGTH_BYTES))
    question = msgspec.msgpack.decode(_read(size), type=Question)
    threading.Thread(target=_end_with_who_asked, daemon=True).start()
    replies.write(_framed(msgspec.msgpack.encode(_reply(question, num_workers))))
    replies.flush()


def _read(size: int) -> bytes:
    """From the descriptor itself: the thread that waits for its end must not hold a lock of Python's."""
    body = b""
    while len(body) < size:
        part = os.read(0, size - len(body))
        if not part:
            raise SystemExit(1)
        body += part
    return body


def _end_with_who_asked() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def _reply(question: Question, num_workers: int) -> Reply:
    try:
        with closing(load_evaluators(num_workers)) as evaluators:
            return Reply(answer(question, evaluators, time_is_over(question.improve_s)))
    except UserError as error:
        return Reply(None, SearchFailed(str(error)))
    except Exception as error:
        return Reply(None, SearchFailed(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main(int(sys.argv[1]))
