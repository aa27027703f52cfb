"""A collector on loopback that keeps what it is sent, and answers as a test tells it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Receiver:
    """``statuses`` are answered in turn, then 200. It holds its answers back until ``may_answer``."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.came = threading.Condition()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""

    def wait(self, num_requests: int, timeout_s: float = 20.0) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= num_requests, timeout_s), "nothing came"

    @property
    def spans(self) -> list[Any]:
        """All spans of all requests, decoded by OpenTelemetry's own messages."""
        service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        found = []
        for _, _, body in self.requests:
            message = service.ExportTraceServiceRequest.FromString(body)
            found += [span for one in message.resource_spans for scope in one.scope_spans for span in scope.spans]
        return found

    @property
    def resource(self) -> dict[str, Any]:
        service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        return attributes(service.ExportTraceServiceRequest.FromString(self.requests[0][2]).resource_spans[0].resource)


def attributes(owner: Any) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in owner.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with receiver.came:
                receiver.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                receiver.came.notify_all()
            receiver.may_answer.wait(20.0)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests need no access log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        receiver.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
