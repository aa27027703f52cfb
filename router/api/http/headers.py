"""Request headers that steer a request, and response headers that tell where it ran."""

import re
from collections.abc import Mapping
from os import urandom
from typing import Final

import msgspec
from starlette.types import Scope

from mesh.rules import Lateness
from router.api.errors import bad_parameter
from router.generation import Route

MAX_SLO_S: Final = 3600.0
MAX_PRIORITY: Final = 100

_KEY: Final = "meshserve.headers"
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# Narrower than Python's own reading, which takes "1_0", "nan", blanks and the digits of all scripts.
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,3}")


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Return the headers by their names in lower case; the first of those with one name. Worked out once a request."""
    found: Mapping[str, str] | None = scope.get(_KEY)
    if found is None:
        raw = reversed(scope["headers"])
        found = scope[_KEY] = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    return found


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own ``x-request-id`` if it is sane, else a new one."""
    given = headers.get("x-request-id")
    return given if given and _SANE_ID.fullmatch(given) else urandom(16).hex()


class Wishes(msgspec.Struct, frozen=True):
    """What a client overrides of its service's promises; None: nothing."""

    slo_ttft_s: float | None
    slo_tpot_s: float | None
    priority: int | None
    late: Lateness | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Wishes":
        """Raise `ApiError` with the header's name if one cannot be read."""
        if WISHED.isdisjoint(headers):
            return NO_WISHES
        return cls(
            slo_ttft_s=_milliseconds(headers, "x-slo-ttft-ms"),
            slo_tpot_s=_milliseconds(headers, "x-slo-tpot-ms"),
            priority=_priority(headers, "x-priority"),
            late=_late(headers, "x-late"),
        )

    @property
    def are_none(self) -> bool:
        return self.slo_ttft_s is self.slo_tpot_s is self.priority is None and self.late is None


WISHED: Final = frozenset({"x-slo-ttft-ms", "x-slo-tpot-ms", "x-priority", "x-late"})
NO_WISHES: Final = Wishes(None, None, None)


def _milliseconds(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name)
    if text is None:
        return None
    seconds = float(text) / 1000 if _NUMBER.fullmatch(text) else 0.0
    if not 0.0 < seconds <= MAX_SLO_S:
        raise bad_parameter(name, f"must be milliseconds above 0 and at most {MAX_SLO_S * 1000:g}, not {text[:32]!r}")
    return seconds


def _priority(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    priority = int(text) if _INTEGER.fullmatch(text) else MAX_PRIORITY + 1
    if abs(priority) > MAX_PRIORITY:
        raise bad_parameter(name, f"must be an integer in -{MAX_PRIORITY}..{MAX_PRIORITY}, not {text[:32]!r}")
    return priority


def _late(headers: Mapping[str, str], name: str) -> Lateness | None:
    text = headers.get(name)
    if text is None:
        return None
    if text not in {rule.value for rule in Lateness}:
        raise bad_parameter(name, f"must be serve or reject, not {text[:32]!r}")
    return Lateness(text)


def route_headers(route: Route) -> dict[str, str]:
    """Return headers that say where a request runs and why."""
    return {
        "x-meshserve-prefill": route.prefill_engine,
        "x-meshserve-decode": route.decode_engine,
        "x-meshserve-rule": route.rule,
        "x-meshserve-queued-ms": f"{route.queued_s * 1000:.3f}",
        "x-meshserve-predicted-ttft-ms": f"{route.predicted_ttft_s * 1000:.3f}",
    }
