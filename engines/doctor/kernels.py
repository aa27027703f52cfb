"""Says whether the kernels for processors are compiled, and why not. See `engines.torch_engine.layers.cpu_kernels`."""

import importlib.util
import platform
import shutil
import sysconfig
from pathlib import Path

from engines.doctor.torch_report import TorchReport
from mesh.doctor.findings import Finding, Health

ABOUT = "kernels"
MODULE = "engines.torch_engine._kernels"
CPU_INFO = Path("/proc/cpuinfo")
SETS = {
    "avx512_vnni": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"),
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl"),
    "avx2": ("avx2", "fma"),
    "neon_dot": ("asimd", "asimddp"),
    "neon": ("asimd",),
}  # kernels, the fastest first, and what the processor needs for them
AGAIN = "pip install --force-reinstall --no-deps --no-cache-dir . (or from the wheel)"


def from_outside() -> Finding:
    """Look at files alone: nothing is loaded."""
    if importlib.util.find_spec(MODULE) is None:
        return _not_compiled()
    return _of_sets(sets_of(cpu_flags()))


def from_inside(report: TorchReport) -> Finding:
    """Take what the engine's own process found."""
    if importlib.util.find_spec(MODULE) is None:
        return _not_compiled()
    if not report.problem and not report.kernels:
        text = "compiled, but cannot be loaded beside this torch: decodes are several times slower"
        return Finding(ABOUT, Health.SLOW, text, f"compile them again: {AGAIN}")
    return _of_sets([name for name in report.kernels if name in SETS] or sets_of(cpu_flags()))


def sets_of(flags: frozenset[str]) -> list[str]:
    """Return the sets that a processor with such flags runs."""
    return [name for name, needed in SETS.items() if flags.issuperset(needed)]


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets of this processor, as Linux names them."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(found.partition(":")[2].split())


def _of_sets(names: list[str]) -> Finding:
    if names:
        return Finding(ABOUT, Health.OK, f"compiled; this processor runs {', '.join(names)}")
    text = f"compiled, but this processor ({platform.machine()}) has neither AVX2 nor NEON: the plain ones are slower"
    return Finding(ABOUT, Health.SLOW, text, "a processor with AVX2 or AVX-512 decodes several times as fast")


def _not_compiled() -> Finding:
    lacks = [
        *([] if shutil.which("cc") or shutil.which("gcc") else ["a C compiler (gcc)"]),
        *([] if _has_headers() else ["Python's headers (python3-dev)"]),
    ]
    why = f"this machine lacks {' and '.join(lacks)}" if lacks else "there was no compiler when this was installed"
    first = f"install {' and '.join(lacks)}, then " if lacks else ""
    return Finding(ABOUT, Health.SLOW, f"not compiled, as {why}: decodes are slower", f"{first}compile them: {AGAIN}")


def _has_headers() -> bool:
    return (Path(sysconfig.get_path("include")) / "Python.h").is_file()
