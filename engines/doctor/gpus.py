"""Compares the GPUs of this machine with what torch and the topology make of them."""

import shutil
import subprocess
from collections.abc import Sequence

from engines.doctor.torch_report import TorchReport
from mesh.doctor.findings import Finding, Health
from mesh.extras import how_to_install, missing_extra

DEADLINE_S = 20.0
ABOUT = "GPUs"


def list_gpus() -> list[str]:
    """Return the names of the GPUs that the driver knows; none without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def examine(known: Sequence[str], torch: TorchReport, devices: Sequence[str]) -> Finding:
    """``known``: by the driver. ``devices``: of the engines that are to run here."""
    num_wanted = sum(device.startswith("cuda") for device in devices)
    if not known:
        if num_wanted:
            mend = 'install the NVIDIA driver, or set device = "cpu"'
            return Finding(ABOUT, Health.BROKEN, f"none, and {num_wanted} engines want one", mend)
        return Finding(ABOUT, Health.OK, "none (nvidia-smi names none)")
    text = "; ".join(known)
    health = Health.BROKEN if num_wanted else Health.SLOW
    if torch.version and not torch.gpus:
        mend = (
            "install a build of torch for CUDA" if torch.cuda is None else "see why torch.cuda.is_available() is False"
        )
        return Finding(ABOUT, health, f"{text}, but torch {torch.version} cannot use them", mend)
    if missing_extra("GPUs", "gpu", "cupy"):
        return Finding(ABOUT, health, f"{text}, but cupy, which moves KV on them, is missing", how_to_install("gpu"))
    return Finding(ABOUT, Health.OK, text)
