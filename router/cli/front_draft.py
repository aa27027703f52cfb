"""Makes the topology of `mesh front`: a service for each model of the servers, and a table for those that are alike."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mesh.cli.first_steps.draft import name_of
from router.servers.facts import ServerFacts

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")
MOST_MODELS = 64  # of one server that are served


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answered."""

    url: str
    facts: ServerFacts

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.facts.models[:MOST_MODELS])


@dataclass(frozen=True)
class FrontDraft:
    """What is written. Promises of None are those that topologies have by default."""

    servers: Sequence[FoundServer]
    name: str = "front"
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    policy: str = "tropical"
    address: str = "127.0.0.1"
    port: int = 8000
    api_key_env: str | None = None
    is_open: bool = False

    def text(self) -> str:
        """Return the topology with comments, in TOML."""
        return "\n".join(self._lines()) + "\n"

    @cached_property
    def services(self) -> Mapping[str, str]:
        """Names of services by what servers call their models; no two are equal."""
        names: dict[str, str] = {}
        for model in dict.fromkeys(model for server in self.servers for model in server.models):
            name = wanted = name_of(model)
            number = 2
            while name in names.values():
                name, number = f"{wanted}-{number}", number + 1
            names[model] = name
        return names

    def _lines(self) -> Iterator[str]:
        yield "# A gateway in front of servers that run already. `mesh up FILE` starts it."
        yield from ("", "[mesh]", f"name = {_quoted(self.name)}")
        yield from ("", "# A service is a model and the latency promise it is served with.")
        for model, name in self.services.items():
            yield from self._service(model, name)
        yield "# Servers that have the same models are engines of one table."
        for number, (models, urls) in enumerate(self._alike().items()):
            yield from self._engines("server" if number == 0 else f"server_{number + 1}", models, urls)
        yield from ("[gateways.gateway]", f"address = {_quoted(self.address)}", f"port = {self.port}", "")
        if self.is_open:
            yield from ("[access]", "open = true", "")
        yield from ("[policy]", f"name = {_quoted(self.policy)}")

    def _service(self, model: str, name: str) -> Iterator[str]:
        yield f"[services.{name if _BARE.match(name) else _quoted(name)}]"
        if model != name:
            yield f"aliases = [{_quoted(model)}]  # as the servers call it"
        if self.ttft_ms is not None:
            yield f"ttft_ms = {self.ttft_ms:g}  # time to first token"
        if self.tpot_ms is not None:
            yield f"tpot_ms = {self.tpot_ms:g}  # time per output token after the first"
        if (context := self._context(model)) is not None:
            yield f"max_context = {context}  # tokens"
        yield ""

    def _context(self, model: str) -> int | None:
        """The longest that all of its servers take."""
        found = [one.max_context for server in self.servers for one in server.facts.models if one.id == model]
        known = [context for context in found if context is not None]
        return min(known) if known and len(known) == len(found) else None

    def _alike(self) -> dict[tuple[str, ...], list[str]]:
        alike: dict[tuple[str, ...], list[str]] = {}
        for server in self.servers:
            alike.setdefault(tuple(sorted(server.models)), []).append(server.url)
        return alike

    def _engines(self, table: str, models: Sequence[str], urls: Sequence[str]) -> Iterator[str]:
        yield from (f"[engines.{table}]", 'backend = "openai"')
        yield f"url = {_quoted(urls[0]) if len(urls) == 1 else json.dumps(list(urls))}"
        pairs = ", ".join(f"{_quoted(self.services[model])} = {_quoted(model)}" for model in models)
        yield f"services = {{ {pairs} }}"
        if self.api_key_env is not None:
            yield f"api_key_env = {_quoted(self.api_key_env)}"
        yield ""


def _quoted(text: str) -> str:
    """A TOML string; JSON's are of the same form."""
    return json.dumps(text, ensure_ascii=False)
