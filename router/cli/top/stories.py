"""A request's story, fetched from its gateway: the text of ``mesh explain``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from router.cli.top.feeds.http import GetError, get
from router.cli.top.screen import AskStory
from router.cli.top.words import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_BYTES: Final = 8 * 2**20


async def fetch_story(url: str | None, headers: Mapping[str, str], asked: AskStory) -> "RenderableType":
    """Return what to show: the story, or in one line why there is none."""
    from rich.text import Text

    if url is None:
        return Text(f"{asked.gateway} does not run, or says nothing", "red")
    try:
        async with get(f"{url}/mesh/requests/{quote(asked.id, safe='')}", headers) as answer:
            return _story(await answer.body(MOST_BYTES))
    except GetError as error:
        return Text(clean(f"{asked.gateway}: {error}"), "red")
    except msgspec.MsgspecError:
        return Text(f"what {asked.gateway} answers is no story of this version", "red")


def _story(body: bytes) -> "RenderableType":
    from router.cli.story import stories
    from router.history.explain import Explanations

    return stories(msgspec.convert(_harmless(msgspec.json.decode(body)), Explanations))


def _harmless(value: Any) -> Any:
    """The same, without what a terminal would obey."""
    match value:
        case str():
            return clean(value)
        case list():
            return [_harmless(one) for one in value]
        case dict():
            return {clean(key): _harmless(one) for key, one in value.items()}
    return value
