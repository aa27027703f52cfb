"""A first topology of one model, as a commented file: what `mesh init` writes and `mesh serve` runs."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """What is asked for. ``kv_memory``: of each engine, as topologies write sizes. ``keys``: a file of access keys."""

    model: str
    name: str  # of the service
    ttft_ms: float = 5000.0
    tpot_ms: float = 250.0
    num_engines: int = 2
    threads: int = 1  # of each engine
    device: str = "cpu"
    dtype: str = "float32"
    kv_memory: str = "256MiB"
    address: str = "127.0.0.1"
    port: int = 8000
    keys: str | None = None
    is_open: bool = False  # everybody may come, where the address lets other machines in
    mesh: str | None = None  # its name; None: the file's

    def text(self) -> str:
        """Return the topology with comments, in TOML."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# A mesh of one model. `mesh check FILE` names mistakes, `mesh up FILE` starts it."
        if self.mesh is not None:
            yield from ("", "[mesh]", f"name = {_quoted(self.mesh)}")
        yield from self._service()
        yield from self._engines()
        yield from self._gateway()
        yield from self._access()
        yield from ("", "# Which engine a request goes to: `mesh policy --list` describes all policies.")
        yield from ("[policy]", 'name = "tropical"')

    def _service(self) -> Iterator[str]:
        yield from ("", '# A service is a model and the latency promise it is served with. Clients name it as "model".')
        yield f"[services.{self.name if _BARE.match(self.name) else _quoted(self.name)}]"
        yield f"model = {_quoted(self.model)}"
        yield f"ttft_ms = {self.ttft_ms:g}  # time to first token"
        yield f"tpot_ms = {self.tpot_ms:g}  # time per output token after the first"
        yield f"dtype = {_quoted(self.dtype)}  # float32, bfloat16, float16; or int8, which is faster on processors"

    def _engines(self) -> Iterator[str]:
        yield from (
            "",
            "# An engine is one process that runs models. Prefill engines read prompts; multiplexing engines write",
        )
        yield "# answers, and read prompts when there is time to spare."
        if self.num_engines == 1:
            yield from self._engine("engine", "multiplex", 1)
            return
        num_prefill = max(1, self.num_engines // 4)
        yield from self._engine("prefill", "prefill", num_prefill)
        yield ""
        yield from self._engine("decode", "multiplex", self.num_engines - num_prefill)

    def _engine(self, name: str, role: str, count: int) -> Iterator[str]:
        yield from (f"[engines.{name}]", f"role = {_quoted(role)}")
        if count > 1:
            yield f"count = {count}"
        if self.device != "cpu":
            yield f"device = {_quoted(self.device)}"
        yield f"threads = {self.threads}  # all engines together: no more than there are cores"
        yield f"kv_memory = {_quoted(self.kv_memory)}  # of the requests that run; the weights come on top"

    def _gateway(self) -> Iterator[str]:
        yield from ("", "# The gateway speaks the OpenAI API to clients.", "[gateways.gateway]")
        yield f"address = {_quoted(self.address)}  # 0.0.0.0 lets other machines in, those that have a key of [access]"
        yield f"port = {self.port}"

    def _access(self) -> Iterator[str]:
        if self.keys is not None:
            yield from ("", "# `mesh keys add NAME` makes a key.", "[access]", f"keys = {_quoted(self.keys)}")
        elif self.is_open:
            yield from ("", "# Everybody who reaches the gateway may use it.", "[access]", "open = true")


def name_of(model: str) -> str:
    """Return what a service of this model is called: the last part of the reference, without what is only of files."""
    last = model.rstrip("/").rpartition("/")[2].partition("@")[0]
    name = _NOT_IN_NAMES.sub("-", re.sub(r"\.gguf$", "", last, flags=re.IGNORECASE)).strip("-._")
    return name or "model"


def _quoted(text: str) -> str:
    """A TOML string; JSON's are of the same form."""
    return json.dumps(text, ensure_ascii=False)
