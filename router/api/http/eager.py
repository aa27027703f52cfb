"""Runs a coroutine without waiting for it as far as it does not wait itself: most never do."""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any

Work = Coroutine[Any, Any, None]


def begin(work: Work) -> Work | None:
    """Run it up to where it waits. Return what is left of it, for a task of the same event loop; None: nothing is."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _rest(work, awaited)


@coroutine
def _rest(work: Work, awaited: Any) -> Generator[Any, Any, None]:
    """Go on with work that waits for something, as `yield from` would if nothing had come of it yet."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            resume: Callable[[], Any] = partial(work.throw, error)
        else:
            resume = partial(work.send, sent)
        try:
            awaited = resume()
        except StopIteration:
            return
