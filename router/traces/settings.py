"""Says where the spans of a gateway go: what the topology says, and OpenTelemetry's own variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from mesh.errors import UserError
from mesh.topology.schema import TracesSpec

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
DEFAULT_TIMEOUT_S: Final = 10.0
MAX_TIMEOUT_S: Final = 60.0
PATH: Final = "/v1/traces"


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """Where spans go, and how. Headers may hold keys, so they are never printed."""

    url: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: Path | None = None  # of who signed the collector's; None: those that the system trusts

    @classmethod
    def of(cls, spec: TracesSpec, environment: Mapping[str, str]) -> "CollectorSettings":
        """What the topology says; where it says nothing, OpenTelemetry's own variables. Raise `UserError` with the name
        of one that cannot be read.
        """
        certificate = _variable(environment, "CERTIFICATE")
        return cls(
            url=_url(spec, environment),
            timeout_s=_timeout_s(environment) if spec.timeout_s is None else spec.timeout_s,
            headers=_headers(environment),
            certificate=Path(certificate) if certificate else None,
        )

    @property
    def place(self) -> str:
        """The collector's name for people."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def _variable(environment: Mapping[str, str], name: str) -> str:
    """The variable for traces goes before the one for all signals."""
    return environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environment.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _url(spec: TracesSpec, environment: Mapping[str, str]) -> str:
    if spec.endpoint is None and (url := environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return _checked("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
    base = spec.endpoint or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
    base = _checked("OTEL_EXPORTER_OTLP_ENDPOINT", base).rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def _checked(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{name}: not the URL of a collector; use one such as {DEFAULT_ENDPOINT}")
    return url


def _timeout_s(environment: Mapping[str, str]) -> float:
    """OpenTelemetry counts it in seconds for Python, and in milliseconds in its specification: the latter holds."""
    text = _variable(environment, "TIMEOUT")
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        timeout_s = float(text) / 1000
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise UserError(f"OTEL_EXPORTER_OTLP_TIMEOUT: {text!r} does not fit; use milliseconds up to 60000")
    return timeout_s


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Read a list like ``key1=value1,key2=value2``, in which values are percent-encoded."""
    headers = {}
    for member in filter(None, (one.strip() for one in _variable(environment, "HEADERS").split(","))):
        name, equals, value = member.partition("=")
        name, value = unquote(name.strip()), unquote(value.strip())
        if not equals or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise UserError("OTEL_EXPORTER_OTLP_HEADERS: not a list of headers; write it like name=value,other=value")
        if not value.isascii() or not value.isprintable():
            raise UserError(f"OTEL_EXPORTER_OTLP_HEADERS: the value of {name} holds what no header may hold")
        headers[name.lower()] = value
    return headers
