"""Builds the output of a response, item by item, and tells of each step as the events of a stream do."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta

Json: TypeAlias = dict[str, Any]
CallIds: TypeAlias = Callable[[int], str]  # of an answer's calls, by their number


class OutputBuilder:
    """The items so far. ``token`` makes their ids; ``call_id`` names calls. One item grows at a time."""

    def __init__(self, token: str, call_id: CallIds) -> None:
        self.items: list[Json] = []
        self._token = token
        self._call_id = call_id
        self._texts: list[str] = []  # of the item that grows
        self._is_open = False

    def feed(self, deltas: Sequence[Delta]) -> Iterator[Json]:
        """Take what an answer adds, and yield the events that tell of it."""
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    if text:
                        yield from self._add_text("message", "response.output_text", text)
                case ReasoningDelta(text):
                    if text:
                        yield from self._add_text("reasoning", "response.reasoning_text", text)
                case CallBegins(index, name):
                    yield from self._begin_call(index, name)
                case CallArguments(_, text):
                    self._texts.append(text)
                    yield self._event("response.function_call_arguments.delta", delta=text)

    def finish(self, *, is_whole: bool) -> Iterator[Json]:
        """End the item that grows. An answer that is not whole was cut off in it."""
        yield from self._end("completed" if is_whole else "incomplete")

    @property
    def _item(self) -> Json:
        return self.items[-1]

    def _add_text(self, kind: str, event: str, text: str) -> Iterator[Json]:
        if not self._is_open or self._item["type"] != kind:
            yield from self._begin_text(kind)
        self._texts.append(text)
        more: Json = {"logprobs": []} if kind == "message" else {}
        yield self._event(f"{event}.delta", content_index=0, delta=text, **more)

    def _begin_text(self, kind: str) -> Iterator[Json]:
        if kind == "message":
            item: Json = {"type": "message", "role": "assistant", "content": []}
        else:
            item = {"type": "reasoning", "summary": [], "content": []}
        yield from self._begin("msg" if kind == "message" else "rs", item)
        yield self._event("response.content_part.added", content_index=0, part=_part(kind, ""))

    def _begin_call(self, index: int, name: str) -> Iterator[Json]:
        item = {"type": "function_call", "call_id": self._call_id(index), "name": name, "arguments": ""}
        yield from self._begin("fc", item)

    def _begin(self, prefix: str, item: Json) -> Iterator[Json]:
        yield from self._end("completed")
        item = {"id": f"{prefix}_{self._token}_{len(self.items)}", **item, "status": "in_progress"}
        self.items.append(item)
        self._is_open = True
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": dict(item)}

    def _end(self, status: str) -> Iterator[Json]:
        if not self._is_open:
            return
        text, item = "".join(self._texts), self._item
        self._texts, self._is_open = [], False
        item["status"] = status
        if item["type"] == "function_call":
            item["arguments"] = text
            yield self._event("response.function_call_arguments.done", name=item["name"], arguments=text)
        else:
            yield from self._end_text(item, text)
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": item}

    def _end_text(self, item: Json, text: str) -> Iterator[Json]:
        part = _part(item["type"], text)
        item["content"] = [part]
        if item["type"] == "message":
            yield self._event("response.output_text.done", content_index=0, text=text, logprobs=[])
        else:
            yield self._event("response.reasoning_text.done", content_index=0, text=text)
        yield self._event("response.content_part.done", content_index=0, part=part)

    def _event(self, kind: str, **fields: object) -> Json:
        return {"type": kind, "item_id": self._item["id"], "output_index": len(self.items) - 1, **fields}


def _part(kind: str, text: str) -> Json:
    if kind == "message":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": text}
