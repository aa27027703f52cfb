"""Where spans go: the topology before the environment, traces before all signals, and keys are never shown."""

import pytest

from mesh.errors import UserError
from mesh.topology.schema import TracesSpec
from router.traces.settings import CollectorSettings

ALL, TRACES = "OTEL_EXPORTER_OTLP", "OTEL_EXPORTER_OTLP_TRACES"


@pytest.mark.parametrize(
    ("endpoint", "environment", "url"),
    [
        (None, {}, "http://127.0.0.1:4318/v1/traces"),
        ("http://c:1/", {f"{TRACES}_ENDPOINT": "http://d/x"}, "http://c:1/v1/traces"),
        ("http://c:1/v1/traces", {}, "http://c:1/v1/traces"),
        (None, {f"{ALL}_ENDPOINT": "https://d/base"}, "https://d/base/v1/traces"),
        (None, {f"{ALL}_ENDPOINT": "http://d", f"{TRACES}_ENDPOINT": "http://e/x"}, "http://e/x"),
    ],
)
def test_the_endpoint(endpoint: str | None, environment: dict[str, str], url: str):
    assert CollectorSettings.of(TracesSpec(endpoint), environment).url == url


def test_headers_are_read_and_not_shown():
    environment = {f"{ALL}_HEADERS": "x=1", f"{TRACES}_HEADERS": "Authorization=Bearer%20secret, x-team = a"}
    settings = CollectorSettings.of(TracesSpec(), environment)
    assert settings.headers == {"authorization": "Bearer secret", "x-team": "a"}
    assert "secret" not in repr(settings)


def test_the_time_of_an_answer():
    assert CollectorSettings.of(TracesSpec(), {f"{ALL}_TIMEOUT": "2500"}).timeout_s == 2.5
    assert CollectorSettings.of(TracesSpec(timeout_s=1.0), {f"{ALL}_TIMEOUT": "2500"}).timeout_s == 1.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HEADERS", "secret"), ("HEADERS", "a b=secret"), ("HEADERS", "a=secret%0d%0ab"), ("TIMEOUT", "soon"),
        ("TIMEOUT", "0"), ("TIMEOUT", "nan"), ("ENDPOINT", "grpc://x"), ("ENDPOINT", "x"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_in_one_line(name: str, text: str):
    with pytest.raises(UserError, match=f"OTEL_EXPORTER_OTLP_{name}: ") as caught:
        CollectorSettings.of(TracesSpec(), {f"{ALL}_{name}": text})
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
