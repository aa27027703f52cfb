"""Install torch into this interpreter's environment: the CPU build where no NVIDIA driver is present.

The plain wheel that some registries serve for Linux brings several gigabytes of CUDA libraries. On a machine without
a GPU this script asks first for the CPU build by its local version (found in a local wheel folder or mirror). Then
it asks the project's CPU index. Only then it takes what the registry has.

    python deploy/install_torch.py VERSION [--no-compile]     # whoever says so compiles what it needs
"""

import compileall
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def pip_install(*arguments: str) -> bool:
    words = ["--quiet", "--disable-pip-version-check", "--no-compile", *arguments]
    command = [sys.executable, "-m", "pip", "install", *words]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def compile_all() -> None:
    """On all cores: pip compiles one file after the other."""
    compileall.compile_dir(sysconfig.get_path("purelib"), rx=re.compile("/tests/"), quiet=2, workers=0)


def main(version: str, *compiling: str) -> int:
    if importlib.util.find_spec("torch") is not None:
        return 0
    if shutil.which("nvidia-smi") or sys.platform == "darwin":
        attempts = [[f"torch=={version}"]]
    else:
        attempts = [
            [f"torch=={version}+cpu"],
            [f"torch=={version}", "--index-url", CPU_INDEX, "--retries", "0"],
            [f"torch=={version}"],
        ]
    for attempt in attempts:
        sys.stdout.write(f"installing {' '.join(attempt)}\n")
        sys.stdout.flush()
        if pip_install(*attempt):
            if not compiling:
                compile_all()
            return 0
    sys.stderr.write(f"could not install torch {version}: run `{sys.executable} -m pip install torch` to see why\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
