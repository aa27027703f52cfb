"""The calls of a batch's client."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import httpx

from mesh.errors import UserError

ATTEMPTS: Final = 8  # where nobody answers: gateways restart
FIRST_PAUSE_S: Final = 0.5  # twice as long after each
LATER: Final = (429, 503)


class BatchClient:
    """Asks a gateway. Whoever does not answer is asked again for a while."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def upload(self, path: Path) -> str:
        """Return the id of the file."""
        with path.open("rb") as file:
            answer = self._http.post("/v1/files", files={"file": (path.name, file)}, data={"purpose": "batch"})
        return str(_checked(answer)["id"])

    def create(self, file_id: str, endpoint: str, window: str) -> dict[str, Any]:
        body = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": window}
        return _checked(self._again("POST", "/v1/batches", json=body))

    def show(self, batch_id: str) -> dict[str, Any] | None:
        """Return the batch; None if there is none such."""
        answer = self._again("GET", f"/v1/batches/{batch_id}")
        return None if answer.status_code == 404 else _checked(answer)

    def cancel(self, batch_id: str) -> dict[str, Any]:
        return _checked(self._again("POST", f"/v1/batches/{batch_id}/cancel", json={}))

    def download(self, file_id: str, to: IO[bytes]) -> None:
        with self._http.stream("GET", f"/v1/files/{file_id}/content") as answer:
            if answer.is_error:
                answer.read()
                _checked(answer)
            for piece in answer.iter_bytes():
                to.write(piece)

    def _again(self, method: str, path: str, **more: Any) -> httpx.Response:
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            with _tolerated(is_last):
                answer = self._http.request(method, path, **more)
                if answer.status_code not in LATER or is_last:
                    return answer
            time.sleep(FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


@contextmanager
def _tolerated(is_last: bool) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError:
        if is_last:
            raise


def _checked(answer: httpx.Response) -> dict[str, Any]:
    """Raise `UserError` with the gateway's own words if it refuses."""
    try:
        found = answer.json()
    except ValueError:
        found = {}
    if answer.is_error:
        error = found.get("error") if isinstance(found, dict) else None
        reason = error.get("message") if isinstance(error, dict) else answer.reason_phrase
        raise UserError(f"{answer.url}: {answer.status_code}: {reason}")
    if not isinstance(found, dict):
        raise UserError(f"{answer.url}: is no gateway: its answer is not an object of JSON")
    return found
