"""Asks torch, in a process of its own, what it can do: loading it takes seconds, and may fail in many ways."""

import subprocess
import sys

import msgspec

DEADLINE_S = 120.0
_ASK = """
import json, torch
from engines.torch_engine.layers.cpu_kernels import kernel_sets
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
gpus = [torch.cuda.get_device_name(index) for index in range(count)]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus, "kernels": kernel_sets()}))
"""


class TorchReport(msgspec.Struct, frozen=True):
    """What torch says. ``kernels``: sets of ours that this processor runs. ``problem``: why it says nothing."""

    version: str = ""
    cuda: str | None = None
    gpus: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    problem: str = ""

    @property
    def text(self) -> str:
        return f"{self.version}, {f'for CUDA {self.cuda}' if self.cuda else 'for processors'}"


def ask_torch() -> TorchReport:
    command = [sys.executable, "-c", _ASK]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1] if done.stdout else "", type=TorchReport)
    except subprocess.TimeoutExpired:
        return TorchReport(problem=f"was not loaded within {DEADLINE_S:g} s")
    except msgspec.DecodeError:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return TorchReport(problem=f"cannot be loaded: {said[-1]}")
