"""Each defence of the product, switched off: the code as it would be without it."""

from typing import Any

import msgspec
import pytest

from engines.admission.acceptance import Admission
from engines.core import EngineCore
from engines.engine_request import EngineRequest
from engines.requests import OwnedRequests
from engines.transfers.handover import Handovers
from engines.transfers.unloading import Unloading
from kvtransfer.memory import KVBlocks
from kvtransfer.protocol import Imported
from kvtransfer.receive import ReceiveState, ReceiveTransfer
from kvtransfer.send import SendState, SendTransfer
from mesh.membership.membership import Membership, Renewed, Restarted
from mesh.wire.requests import Epoch
from mesh.wire.transfers import Reserve
from router.placement.change.changeover import Patience
from router.requests import ownership
from router.requests.in_flight_request import InFlightRequest
from router.requests.overload.places import GatewayPlaces
from router.requests.probing import Probing
from router.requests.recovery import Recovery
from router.requests.request_state import Losses, RequestPhase
from router.requests.token_stream import TokenStream

Patch = pytest.MonkeyPatch
NEVER = 1e9


# --- token streams ----------------------------------------------------------------------------------------------------


def epoch_fence(patch: Patch) -> None:
    def take_late(self: TokenStream, delta: Any, now: float) -> Any:
        return self.take(msgspec.structs.replace(delta, epoch=self.epoch), now)

    patch.setattr(TokenStream, "_take_late", take_late)


def holding_behind_gaps(patch: Patch) -> None:
    def hold(self: TokenStream, delta: Any, now: float) -> Any:
        skipped = msgspec.structs.replace(delta, offset=self.next_offset)
        return [self._append(skipped, delta.finish)]

    patch.setattr(TokenStream, "_hold", hold)


def end_of_gaps(patch: Patch) -> None:
    """Nobody can fill them, and they do not end."""
    asking_for_lost_tokens(patch)
    due = InFlightRequest.due

    def due_without(self: InFlightRequest, limits: Any, now: float) -> float:
        since, self.stream.gap_since = self.stream.gap_since, None
        try:
            return due(self, limits, now)
        finally:
            self.stream.gap_since = since

    patch.setattr(InFlightRequest, "due", due_without)


def offsets(patch: Patch) -> None:
    """Every delta is new."""

    def append(self: TokenStream, delta: Any, finish: Any) -> Any:
        return take(self, msgspec.structs.replace(delta, offset=self.next_offset), finish)

    take = TokenStream._append
    patch.setattr(TokenStream, "_append", append)


# --- a gateway's requests ---------------------------------------------------------------------------------------------


def stopping_what_moved(patch: Patch) -> None:
    """A request that was cancelled while its engine could not be reached moves on, and stays where it goes: that engine
    is not told at once, nor does it remind the gateway.
    """
    patch.setattr(Recovery, "stop_moved", lambda self, message: [])
    patch.setattr(OwnedRequests, "remind", lambda self, backlog, now: [])


def noticing_unanswered_submits(patch: Patch) -> None:
    """Neither is the engine asked, nor has it a deadline."""
    due, is_silent = InFlightRequest.due, Probing._is_silent
    patch.setattr(
        InFlightRequest,
        "due",
        lambda self, limits, now: NEVER if self.assignment.phase is RequestPhase.SENT else due(self, limits, now),
    )
    patch.setattr(
        Probing,
        "_is_silent",
        lambda self, request, now: request.assignment.phase is not RequestPhase.SENT and is_silent(self, request, now),
    )


def asking_for_lost_tokens(patch: Patch) -> None:
    """Whoever is asked says only what it does not have."""
    patch.setattr(EngineRequest, "resend_from", lambda self, offset: None)


def probing(patch: Patch) -> None:
    patch.setattr(Probing, "ask", lambda self, now: [])
    patch.setattr(Probing, "next_deadline", lambda self: None)


def knowing_that_requests_are_held(patch: Patch) -> None:
    """Silence is silence, whoever says that it has them."""
    patch.setattr(Recovery, "hold", lambda self, engine, message, now: [])


def backing_off(patch: Patch) -> None:
    patch.setattr(Losses, "avoid", lambda self, engines, now: None)


def stopping_strangers(patch: Patch) -> None:
    patch.setattr(ownership, "_stop_stranger", lambda sender, delta: [])


def cancelling(patch: Patch) -> None:
    patch.setattr(Recovery, "stop", lambda self, request: [])


def bound_of_requests(patch: Patch) -> None:
    patch.setattr(GatewayPlaces, "_why_full", lambda self, tenant: "")


# --- membership -------------------------------------------------------------------------------------------------------


def noticing_restarts(patch: Patch) -> None:
    """Nor is a new incarnation asked what it has."""
    probing(patch)
    observe = Membership.observe

    def observe_without(self: Membership, sender: Any, now: float) -> Any:
        observation = observe(self, sender, now)
        return Renewed(sender) if isinstance(observation, Restarted) else observation

    patch.setattr(Membership, "observe", observe_without)


def ignoring_old_incarnations(patch: Patch) -> None:
    observe = Membership.observe

    def observe_any(self: Membership, sender: Any, now: float) -> Any:
        self._newest[sender.process] = min(sender.incarnation, self._newest.get(sender.process, sender.incarnation))
        return observe(self, sender, now)

    patch.setattr(Membership, "observe", observe_any)


def leases(patch: Patch) -> None:
    patch.setattr(Membership, "expire", lambda self, now: [])
    patch.setattr(Membership, "next_deadline", lambda self: None)


# --- an engine's requests ---------------------------------------------------------------------------------------------


def knowing_submits(patch: Patch) -> None:
    """Each Submit begins anew, whatever is here under its epoch or a later one."""

    patch.setattr(OwnedRequests, "_newest_epoch", lambda self, request: Epoch(-1))


def remembering_what_ended(patch: Patch) -> None:
    patch.setattr("engines.requests.MOST_ENDED", 0)


def hearing_gateways(patch: Patch) -> None:
    """Those that were never heard have no lease."""
    patch.setattr(Membership, "expect", lambda self, process, now: None)


def ending_earlier_owners(patch: Patch) -> None:
    adopt = OwnedRequests.adopt

    def adopt_beside(self: OwnedRequests, service: Any, request: Any, now: float) -> Any:
        known = self.by_id.get(request.id)
        if known is not None and known.epoch <= request.epoch:
            del self.by_id[request.id]
        return adopt(self, service, request, now)

    patch.setattr(OwnedRequests, "adopt", adopt_beside)


def dropping_requests_of_dead_gateways(patch: Patch) -> None:
    lose = EngineCore.lose_peer

    def lose_engines(self: EngineCore, process: str, now: float) -> Any:
        return [] if process.startswith("gateway") else lose(self, process, now)

    patch.setattr(EngineCore, "lose_peer", lose_engines)


def bound_of_waiting(patch: Patch) -> None:
    refusal = Admission.refusal

    def refuse_less(self: Admission, message: Any, step: Any, now: float) -> Any:
        bound, self._max_waiting = self._max_waiting, 10**9
        try:
            return refusal(self, message, step, now)
        finally:
            self._max_waiting = bound

    patch.setattr(Admission, "refusal", refuse_less)


# --- transfers --------------------------------------------------------------------------------------------------------


def deadline_of_reservations(patch: Patch) -> None:
    patch.setattr(ReceiveTransfer, "next_deadline", lambda self: None)


def deadlines_of_senders(patch: Patch) -> None:
    patch.setattr(SendTransfer, "next_deadline", lambda self: None)


def giving_up_unanswered_reserves(patch: Patch) -> None:
    deadline = SendTransfer.next_deadline
    patch.setattr(
        SendTransfer,
        "next_deadline",
        lambda self: None if self.state is SendState.RESERVING else deadline(self),
    )


def giving_up_unanswered_commits(patch: Patch) -> None:
    deadline = SendTransfer.next_deadline
    patch.setattr(
        SendTransfer,
        "next_deadline",
        lambda self: None if self.state is SendState.COMMITTING else deadline(self),
    )


def unknown_owners(patch: Patch) -> None:
    """A migration that breaks off after its Commit goes on at the source, as before it."""
    patch.setattr(
        SendTransfer, "has_sent_commit", property(lambda self: False, lambda self, value: None), raising=False
    )


def knowing_reserves(patch: Patch) -> None:
    receive = Handovers.receive

    def receive_anew(self: Handovers, sender: str, message: Any, payload: Any, now: float) -> Any:
        if isinstance(message, Reserve):
            return self.arrivals.open(sender, message, now)
        return receive(self, sender, message, payload, now)

    patch.setattr(Handovers, "receive", receive_anew)


def waiting_for_running_copies(patch: Patch) -> None:
    """What was reserved is freed while a copy into it runs."""
    settle = ReceiveTransfer._settle

    def settle_at_once(self: ReceiveTransfer, now: float) -> None:
        if self.state is ReceiveState.ABORTING:
            self._running = None
        settle(self, now)

    patch.setattr(ReceiveTransfer, "_settle", settle_at_once)


def lingering(patch: Patch) -> None:
    patch.setattr(SendTransfer, "_is_read_later", property(lambda self: False))


def keeping_only_what_was_copied(patch: Patch) -> None:
    """Blocks count as soon as their copy has ended, whatever came of it."""
    handle = ReceiveTransfer.handle

    def handle_all_well(self: ReceiveTransfer, event: Any, now: float, payload: Any = ()) -> Any:
        if isinstance(event, Imported):
            event = Imported(event.seq, ok=True)
        return handle(self, event, now, payload)

    patch.setattr(ReceiveTransfer, "handle", handle_all_well)


def generations(patch: Patch) -> None:
    patch.setattr(KVBlocks, "is_unchanged", lambda self, blocks, generations: True)


# --- services and plans -----------------------------------------------------------------------------------------------


def waiting_until_nothing_is_left(patch: Patch) -> None:
    """A service goes as soon as it is unloaded."""
    patch.setattr(Unloading, "_is_empty", lambda self, service: True)


def repeating_orders(patch: Patch) -> None:
    patch.setattr("router.placement.daemon.Patience", lambda *_: Patience(NEVER))
