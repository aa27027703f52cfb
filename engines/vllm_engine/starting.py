"""Says in one line why vLLM does not compute a model here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from mesh.errors import UserError

NEEDS: Final[Mapping[str, str]] = {"gptq": "AVX-512", "awq": "AVX-512", "fp8": "AMX"}  # of CPUs, by kind of weights
LONGEST: Final = 300  # characters of what vLLM says

log = structlog.get_logger()


@contextmanager
def said_in_a_line(folder: str, quantization: str | None, device: str) -> Iterator[None]:
    """Start vLLM, or compute its first step. Raise `UserError` with the model's folder for whatever it raises.

    ``quantization``: the kind of the model's weights; None: plain ones.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        log.debug("vLLM does not compute a model", folder=folder, exc_info=True)
        advice = "" if isinstance(error, ValueError) else _advice(quantization, device)
        raise UserError(f"{folder}: vLLM does not compute it here: {in_a_line(error)}{advice}") from error


def in_a_line(error: Exception) -> str:
    """Return what an exception says: of pydantic's, which have a line for how many there are, the first fault."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "validation error" in next(iter(lines), "") and len(lines) > 1:
        lines = [line.partition(" [type=")[0].removeprefix("Value error, ") for line in lines[1:]]
        lines = [line for line in lines if " " in line] or lines  # the first ones may be names of fields
    return f"{type(error).__name__}: {next(iter(lines), 'it does not say why')}"[:LONGEST]


def _advice(quantization: str | None, device: str) -> str:
    needed = NEEDS.get(quantization or "")
    if needed is None or device != "cpu":
        return ""
    return (
        f"; its build for CPUs computes {quantization} weights with {needed}: use other weights where that is missing"
    )
