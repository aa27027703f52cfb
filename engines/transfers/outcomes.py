"""Defines what an engine's transfers come to, beside effects. `engines.requests` makes of it what becomes of the
request.
"""

from dataclasses import dataclass

from engines.effects import Effect
from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from mesh.wire.requests import Epoch, RefusalCode


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decode engine keeps blocks for the request: its prefill may begin."""

    service: Service
    request: EngineRequest


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The decode engine owns the request now."""

    request: EngineRequest


@dataclass(frozen=True, slots=True)
class NotHandedOver:
    """The transfer failed: the request's gateway decides who goes on."""

    request: EngineRequest
    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """The engine ``to`` decodes the request now."""

    request: EngineRequest
    to: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class NotMigrated:
    """The request goes on here as if nothing had happened."""

    request: EngineRequest
    to: str


@dataclass(frozen=True, slots=True)
class Unpinned:
    """No transfer reads the request's blocks any more."""

    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request that another engine handed over, with blocks."""

    service: Service
    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull has ended: its first ``num_blocks`` blocks are where they were to be."""

    transfer: str
    num_blocks: int


EngineOutcome = Effect | Admitted | HandedOver | NotHandedOver | Migrated | NotMigrated | Unpinned | Arrived | Pulled
