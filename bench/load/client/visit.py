"""One request as a client makes it: sent, read to its end, and told as an outcome."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.load.client.answer import OK, Answer
from bench.load.client.http import ConnectError, HttpClient, HttpError, LostError
from bench.load.generator.wire import Api, Shape
from bench.load.results.outcome import REFUSALS, Failure, Outcome

PATHS: Mapping[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
MESH_HEADER = "x-meshserve-"


@dataclass(slots=True)
class Visit:
    """Times are of `time.monotonic`. ``due_at``: when it was to be sent; ``woke_at``: when somebody came to it."""

    number: int
    shape: Shape
    due_at: float
    woke_at: float
    sent_at: float = 0.0
    answer: Answer = field(default_factory=Answer)

    async def run(
        self, client: HttpClient, api: Api, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[Failure | None, str | None]:
        """What went wrong, and in whose words."""
        self.sent_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await client.request("POST", PATHS[api], body, self.answer, headers)
        except TimeoutError:
            return Failure.TIMEOUT, f"no whole answer within {timeout_s:g} s"
        except ConnectError as error:
            return Failure.CONNECTION, str(error)
        except LostError as error:
            return (Failure.BROKEN if error.has_begun else Failure.CONNECTION), str(error)
        except HttpError as error:
            return Failure.CONNECTION, str(error)
        return self._verdict()

    def _verdict(self) -> tuple[Failure | None, str | None]:
        answer = self.answer
        if answer.is_whole:
            return None, None
        if answer.status in REFUSALS:
            return Failure.REFUSED, f"{answer.status}: {answer.problem}"
        if answer.status != OK:
            return Failure.HTTP, f"{answer.status}: {answer.problem}"
        why = answer.problem or ("it says nothing" if answer.is_done else "the stream ended without [DONE]")
        return Failure.BROKEN, why

    def outcome(self, start_at: float, ended_at: float, failure: Failure | None, reason: str | None) -> Outcome:
        answer, shape, usage = self.answer, self.shape, self.answer.usage
        counted = usage.completion_tokens if usage is not None else None
        details = usage.prompt_tokens_details if usage is not None else None
        return Outcome(
            number=self.number,
            model=shape.model,
            due_s=self.due_at - start_at,
            woke_s=self.woke_at - start_at,
            sent_s=(self.sent_at or ended_at) - start_at,
            ended_s=ended_at - start_at,
            input_tokens=(usage.prompt_tokens if usage is not None else None) or shape.num_input,
            output_tokens=answer.num_chunks if counted is None else counted,
            asked_input_tokens=shape.num_input,
            asked_output_tokens=shape.num_output,
            is_counted=counted is not None,
            cached_tokens=(details.cached_tokens or 0) if details is not None else 0,
            num_chunks=answer.num_chunks,
            first_s=None if answer.first_at is None else answer.first_at - start_at,
            last_s=None if answer.last_at is None else answer.last_at - start_at,
            itls_s=answer.gaps_s,
            status=answer.status,
            failure=failure,
            reason=reason,
            promise=shape.promise,
            headers={
                name.removeprefix(MESH_HEADER): value
                for name, value in answer.headers.items()
                if name.startswith(MESH_HEADER)
            },
            text="".join(answer.texts) if answer.keeps_text else None,
        )
