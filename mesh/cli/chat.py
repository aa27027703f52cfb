"""``mesh chat``: talk to a model of a mesh, or of any server with the OpenAI API."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mesh.cli.api_key import add_api_key, bearer
from mesh.cli.http_answers import check_answer
from mesh.errors import UserError

if TYPE_CHECKING:
    import httpx

    from mesh.cli.arguments import Subparsers

DEFAULT_URL = "http://127.0.0.1:8000"
Message = dict[str, str]


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("chat", help="talk to a model; with a question, answer it and end")
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="what to ask (default: talk until Ctrl-D)")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the gateway (default: {DEFAULT_URL})")
    parser.add_argument("--model", metavar="NAME", help="the service (default: the first one)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer")
    add_api_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import httpx

    timeout, headers = httpx.Timeout(10.0, read=300.0), bearer(options.api_key_file)
    try:
        with httpx.Client(base_url=options.url.rstrip("/"), timeout=timeout, headers=headers) as client:
            model = options.model or _first_model(client)
            extra = {"max_tokens": options.max_tokens} if options.max_tokens else {}
            if options.question:
                _say(answer(client, {"model": model, "messages": [_user(options.question)], **extra}))
            else:
                _converse(client, model, extra)
    except httpx.ConnectError:
        raise UserError(
            f"no mesh answers at {options.url}; start one with `mesh up`, or say where with --url"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"{options.url}: {error or type(error).__name__}") from None
    return 0


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _first_model(client: "httpx.Client") -> str:
    response = client.get("/v1/models")
    check_answer(response)
    models = response.json().get("data", [])
    if not models:
        raise UserError(f"{client.base_url} serves no model")
    return str(models[0]["id"])


def _converse(client: "httpx.Client", model: str, extra: dict[str, Any]) -> None:
    with suppress(ImportError):
        import readline  # noqa: F401  # gives input() its history

    sys.stdout.write(f"{model} at {client.base_url}: Ctrl-C stops an answer, Ctrl-D ends\n")
    messages: list[Message] = []
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            sys.stdout.write("\n")
            return
        if not question:
            continue
        messages.append(_user(question))
        try:
            text = _say(answer(client, {"model": model, "messages": messages, **extra}))
            messages.append({"role": "assistant", "content": text})
        except UserError as error:
            sys.stdout.write(f"{error}\n")
            messages.pop()


def _say(pieces: Iterable[str]) -> str:
    """Print an answer as it comes; Ctrl-C ends it where it is."""
    said: list[str] = []
    with suppress(KeyboardInterrupt):
        for piece in pieces:
            said.append(piece)
            sys.stdout.write(piece)
            sys.stdout.flush()
    sys.stdout.write("\n")
    return "".join(said)


def answer(client: "httpx.Client", body: dict[str, Any]) -> Iterator[str]:
    """The pieces of one streamed answer. Raise `UserError` with the server's own words if it refuses."""
    with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        if response.is_error:
            response.read()
        check_answer(response)
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            event = json.loads(data)
            if "error" in event:
                raise UserError(event["error"].get("message", "the server failed"))
            for choice in event.get("choices", []):
                yield choice.get("delta", {}).get("content") or ""
