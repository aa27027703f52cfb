"""Tells a server's iterations apart by the tokens that come of them, and how many prompts it computes in one.

Servers batch continuously: an iteration computes a token of every decode and, beside these, prompts that wait. So a
request whose last token was of this iteration has its next one of the next, and what was sent meanwhile may begin then.
"""

from typing import Final

from router.servers.load.server_request import ServerRequest

TOGETHER_S: Final = 0.003  # after the first token of an iteration, a prompt that is done was computed in it
SHRINKING: Final = 0.25  # part of what is known of the width that fewer prompts in an iteration take back
WIDEST: Final = 64.0  # prompts


class ServerSteps:
    """The iterations of one server. ``number``: those that ended. ``ended_at``: the last one."""

    def __init__(self) -> None:
        self.number = 0
        self.ended_at = 0.0
        self._width = 1.0
        self._unbegun: dict[str, ServerRequest] = {}

    def __repr__(self) -> str:
        return f"<ServerSteps {self.number} width={self._width:.1f} unbegun={len(self._unbegun)}>"

    @property
    def width(self) -> int:
        """Prompts that it was seen to compute in one iteration, if so many wait; 1 if it does one after the other."""
        return int(self._width)

    def sent(self, request: ServerRequest) -> None:
        """Its prompt is there."""
        self._unbegun[request.id] = request

    def removed(self, request: ServerRequest) -> None:
        self._unbegun.pop(request.id, None)

    def clear(self) -> None:
        self._unbegun.clear()

    def token(self, request: ServerRequest, num_running: int, now: float) -> int:
        """Note a token of this request. ``num_running``: decodes of the next iteration.

        Returns in how many iterations its prompt was computed, if this is its first one: 1 where nobody can tell.
        """
        self._unbegun.pop(request.id, None)
        began = request.step
        if self._is_of_the_next(request, now):
            self._end(num_running, now)
        request.step = self.number
        return max(1, self.number - began) if request.begun_at is not None else 1

    def computed(self, num_prompts: int, *, are_all: bool) -> None:
        """Note that an iteration computed so many prompts. ``are_all``: of those that waited for it."""
        if num_prompts > self._width:
            self._width = min(num_prompts, WIDEST)
        elif not are_all:
            self._width += SHRINKING * (num_prompts - self._width)

    def _is_of_the_next(self, request: ServerRequest, now: float) -> bool:
        if request.first_at is not None:
            return request.step == self.number
        if request.begun_at is None:
            return True
        return request.step == self.number and now - self.ended_at > TOGETHER_S

    def _end(self, num_running: int, now: float) -> None:
        self.number += 1
        self.ended_at = now
        for request in self._unbegun.values():
            request.begun_at, request.step, request.num_running = now, self.number, num_running
        self._unbegun.clear()
