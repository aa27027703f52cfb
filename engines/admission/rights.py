"""Decides who may ask an engine for what. Members of a mesh may only speak for themselves. Pure."""

from collections.abc import Collection

from mesh.wire.messages import EngineMessage
from mesh.wire.prefixes import TellPrefixes
from mesh.wire.requests import RequestSpec, Submit, SubmitBatch
from mesh.wire.transfers import Pull, Reserve


def why_not(sender: str, message: EngineMessage, gateways: Collection[str]) -> str | None:
    """Return why an engine does not take this from ``sender``; None: it does.

    Requests come from the gateway that they name, or from engines, for a gateway of the mesh. An engine waits for
    the lease of a request's gateway: for a gateway that does not exist it would wait in vain, and remember it.
    """
    match message:
        case Submit():
            return _why_not_its_own(sender, message.spec, gateways)
        case SubmitBatch():
            reasons = (_why_not_its_own(sender, submit.spec, gateways) for submit in message.submits)
            return next((reason for reason in reasons if reason is not None), None)
        case TellPrefixes() if sender not in gateways:
            return "it is no gateway of this mesh"
        case Pull(gateway=gateway) | Reserve(spec=RequestSpec(gateway=gateway)):
            return _why_no_transfer(sender, gateway, gateways)
    return None


def _why_no_transfer(sender: str, gateway: str, gateways: Collection[str]) -> str | None:
    if gateway not in gateways:
        return f"{gateway!r} is no gateway of this mesh"
    return "gateways have no KV" if sender in gateways else None


def _why_not_its_own(sender: str, spec: RequestSpec, gateways: Collection[str]) -> str | None:
    if sender not in gateways:
        return "it is no gateway of this mesh"
    return None if spec.gateway == sender else f"the request is of {spec.gateway!r}"
