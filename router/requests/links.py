"""Remembers engines that do not reach each other, as failed hand-overs tell: a gateway may hear both of them.

A pair of engines is left alone for a while once a hand-over from one to the other failed, each time in a row for twice
as long. Then one request tries it, and the others wait for what becomes of that. A request that was handed over ends
all this.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from mesh.wire.control import Role
from router.policies.policy import Dispatch
from router.view.engine_view import EngineView

PAUSE_S = 1.0
MAX_PAUSE_S = 16.0


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    length_s: float
    is_tried: bool = False  # by one request, which was sent when the pause was over


class Links:
    """The broken ways from prefill engines to decode engines, as one gateway knows them."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, str], _Pause] = {}

    def __repr__(self) -> str:
        return f"<Links {self._pauses}>"

    @property
    def all_whole(self) -> bool:
        """Return whether no link is known to be broken."""
        return not self._pauses

    def failed(self, prefill_engine: str, decode_engine: str, now: float) -> None:
        """Note that a hand-over failed. Those that were under way beside it fail for the same cause, and count once."""
        pair = prefill_engine, decode_engine
        known = self._pauses.get(pair)
        if known is None or known.is_tried or now >= known.until:
            length_s = PAUSE_S if known is None else min(2 * known.length_s, MAX_PAUSE_S)
            self._pauses[pair] = _Pause(now + length_s, length_s)

    def sent(self, dispatch: Dispatch, now: float) -> None:
        """Note that a request goes this way: if the pause is over, it is the one that tries."""
        pair = dispatch.prefill_engine, dispatch.decode_engine
        if (known := self._pauses.get(pair)) is not None and now >= known.until:
            self._pauses[pair] = replace(known, until=now + known.length_s, is_tried=True)

    def succeeded(self, prefill_engine: str, decode_engine: str) -> None:
        """The decode engine has sent a token of what it was handed."""
        self._pauses.pop((prefill_engine, decode_engine), None)

    def forget(self, engine: str) -> None:
        """Forget an engine that has ended."""
        self._pauses = {pair: pause for pair, pause in self._pauses.items() if engine not in pair}

    def in_the_way(self, dispatch: Dispatch, serving: Collection[EngineView], now: float) -> str | None:
        """Return the engine without which to decide again, as the hand-over would fail; None if there is none.

        A prefill engine that reaches another of those ``serving`` stays, and the decode engine is left out.
        """
        prefill = dispatch.prefill_engine
        if not self._is_broken(prefill, dispatch.decode_engine, now):
            return None
        decodes = [one.id for one in serving if one.role is not Role.PREFILL and one.id != prefill]
        is_cut_off = all(self._is_broken(prefill, decode, now) for decode in decodes)
        return prefill if is_cut_off else dispatch.decode_engine

    def _is_broken(self, prefill_engine: str, decode_engine: str, now: float) -> bool:
        pause = self._pauses.get((prefill_engine, decode_engine))
        return pause is not None and now < pause.until
