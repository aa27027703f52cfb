"""Sends encoded spans to a collector by HTTP, from a thread that may wait."""

import ssl
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import Final

import httpx

from mesh.errors import UserError
from router.traces.settings import CollectorSettings

MAX_ANSWER: Final = 65_536  # bytes that are read of one
_MEDIA_TYPE: Final = "application/x-protobuf"
_TRY_AGAIN: Final = (429, 502, 503, 504)


class CollectorVerdict(Enum):
    """What a collector made of spans."""

    TAKEN = auto()
    REFUSED = auto()  # it would refuse them again
    AWAY = auto()  # it was not there, or had no time: they may be sent again


@dataclass(frozen=True, slots=True)
class CollectorAnswer:
    """A verdict. ``reason``: for people, empty if the spans were taken."""

    verdict: CollectorVerdict
    reason: str = ""


class Collector:
    """A collector over connections that stay, for one thread. Raise `UserError` if its certificate cannot be read."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._url = settings.url
        headers = {**settings.headers, "content-type": _MEDIA_TYPE, "user-agent": "meshserve"}
        self._client = httpx.Client(
            timeout=settings.timeout_s, headers=headers, verify=_trust(settings.certificate), trust_env=False
        )

    def __enter__(self) -> "Collector":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def send(self, body: bytes, timeout_s: float | None = None) -> CollectorAnswer:
        """Send spans, and wait for the answer. ``timeout_s``: for each step, where that is less than usual."""
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        try:
            with self._client.stream("POST", self._url, content=body, timeout=timeout) as response:
                _read_some(response)
                return _answer(response.status_code)
        except httpx.HTTPError as error:
            return CollectorAnswer(CollectorVerdict.AWAY, type(error).__name__)


def _trust(certificate: Path | None) -> ssl.SSLContext | bool:
    if certificate is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(certificate))
    except OSError as error:
        name = "OTEL_EXPORTER_OTLP_CERTIFICATE"
        raise UserError(f"{name}: {certificate} cannot be read: {error.strerror or error}") from None


def _read_some(response: httpx.Response) -> None:
    """So much that the connection can be used again, unless the answer is longer than any should be."""
    num_bytes = 0
    for part in response.iter_raw():
        num_bytes += len(part)
        if num_bytes > MAX_ANSWER:
            return


def _answer(status: int) -> CollectorAnswer:
    if status // 100 == 2:
        return CollectorAnswer(CollectorVerdict.TAKEN)
    return CollectorAnswer(
        CollectorVerdict.AWAY if status in _TRY_AGAIN else CollectorVerdict.REFUSED, f"HTTP {status}"
    )
