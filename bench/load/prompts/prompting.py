"""From the arguments to the recipe of all bodies: which words, who counts them, what every request has."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.load.client.http import HttpClient
from bench.load.generator.wire import Api, Chat, Piece, Recipe
from bench.load.prompts.chats import flattened, load_chats, load_text
from bench.load.prompts.tokens import LocalTokens, ServedTokens
from bench.load.prompts.wording import Tokens, assumed, fillers, overhead, running_ids, running_words
from mesh.errors import UserError

INEXACT = "lengths of prompts are estimates"


@dataclass(frozen=True, slots=True)
class Prompting:
    """``output_tokens`` of given chats, where their file says so. ``remarks`` are for the user."""

    recipe: Recipe
    output_tokens: Sequence[int | None] = ()
    remarks: Sequence[str] = ()


async def prompting(options: argparse.Namespace, client: HttpClient, url: str, model: str) -> Prompting:
    """Raise `UserError`."""
    api: Api = options.api or ("chat" if options.chats else "completions")
    if options.chats is not None:
        return _given_chats(options, api)
    tokens = await _tokens(options, client, url, model)
    if tokens is None:
        return _assumed(options, api, url)
    sends_ids = api == "completions" and options.prompt_as != "text"
    pieces = await fillers(tokens)
    around = 0 if sends_ids else await overhead(tokens, api, pieces)
    running: tuple[Piece, ...] = ()
    if options.text is not None:
        text = load_text(options.text)
        running = await (running_ids if sends_ids else running_words)(tokens, text)
    remarks = [] if around is not None else [f"{tokens.name}: tokens of words do not add up; {INEXACT}"]
    recipe = Recipe(
        api,
        sends_ids,
        options.seed,
        pieces,
        running,
        around or 0,
        options.prefix_tokens or 0,
        options.prefixes or 1,
        fields=_fields(options),
    )
    return Prompting(recipe, remarks=remarks)


def _given_chats(options: argparse.Namespace, api: Api) -> Prompting:
    chats, lengths = load_chats(options.chats)
    kept: Sequence[Chat] = chats if api == "chat" else list(flattened(chats))
    recipe = Recipe(api, sends_ids=False, seed=options.seed, chats=tuple(kept), fields=_fields(options))
    return Prompting(recipe, lengths)


async def _tokens(options: argparse.Namespace, client: HttpClient, url: str, model: str) -> Tokens | None:
    if options.tokenizer is not None:
        return LocalTokens.load(options.tokenizer)
    served = ServedTokens(client, model, url)
    return served if await served.is_there() else None


def _assumed(options: argparse.Namespace, api: Api, url: str) -> Prompting:
    if options.text is not None or options.prompt_as == "ids":
        option = "--text" if options.text is not None else "--prompt-as ids"
        raise UserError(f"{option}: {url} has no /tokenize; say who counts tokens with --tokenizer")
    recipe = Recipe(
        api,
        sends_ids=False,
        seed=options.seed,
        fillers=assumed(),
        prefix_tokens=options.prefix_tokens or 0,
        num_prefixes=options.prefixes or 1,
        fields=_fields(options),
    )
    return Prompting(recipe, remarks=[f"{url} has no /tokenize, and there is no --tokenizer: {INEXACT}"])


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    fields = {"stream": True, "stream_options": {"include_usage": True}, "temperature": options.temperature}
    if not options.eos:
        fields["ignore_eos"] = True
    return {**fields, **options.body}
