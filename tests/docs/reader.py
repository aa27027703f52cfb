"""A reader does what a page says: saves its files and runs its commands, on free ports and loopback addresses."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from mesh.process.fork_server import SHARED
from tests.docs.pages import ROOT, Block, commands, missing
from tests.end_to_end.conftest import free_port

FILES = ("toml", "csv")


class Reader:
    """One who follows a page in ``folder``, which looks like a checkout."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self._runtime = runtime
        self._own: dict[str, str] = {}
        self._replaced = {"8000": str(free_port())}
        self._replaced |= {"10.0.0.1": own_address(1), "10.0.0.2": own_address(3)}
        for topology in (ROOT / "deploy").glob("*.toml"):
            self.write(f"deploy/{topology.name}", topology.read_text())
        (folder / "deploy/models").symlink_to(ROOT / "deploy/models")
        self.use(ROOT)

    def use(self, tree: Path) -> None:
        """Let the command ``mesh``, and the modules of ``python``, be those of that copy of the product."""
        self.write("bin/mesh", f'#!/bin/sh\nPYTHONPATH={tree} exec {sys.executable} -m mesh.cli "$@"\n')
        self.write("bin/python", f'#!/bin/sh\nPYTHONPATH={tree} exec {sys.executable} "$@"\n')
        for name in ("mesh", "python"):
            (self.folder / "bin" / name).chmod(0o755)
        self._own = {SHARED: ""}  # the server of the tests has imported another copy

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._here(text))

    def run(self, words: str, host: str) -> str:
        """What a command prints. Each host has a runtime folder of its own."""
        done = subprocess.run(
            ["sh", "-c", self._here(words)], cwd=self.folder, env=self._environment(host), timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}"
        return done.stdout

    def stop(self) -> None:
        """Stop what a tutorial that failed has left running: servers that wrote their number, and meshes."""
        for file in self.folder.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        for host, mesh in {process.parts[-3:-1] for process in self._runtime.glob("*/*/*.pid")}:
            path = next(path for path in self.folder.rglob(f"{mesh}.toml"))
            down = [self.folder / "bin/mesh", "down", str(path), "--now"]
            subprocess.run(down, cwd=self.folder, check=False, env=self._environment(host), capture_output=True)

    def _here(self, text: str) -> str:
        for there, here in self._replaced.items():
            text = text.replace(there, here)
        return text

    def _environment(self, host: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        own = {"PATH": path, "COLUMNS": "120", "MESHSERVE_RUNTIME_DIR": str(self._runtime / host)}
        return {**os.environ, **own, **self._own}


def own_address(number: int) -> str:
    """A loopback address for this process alone: nobody else takes its ports, as no connection begins there."""
    _, *low = (os.getpid() + number * 2**22).to_bytes(4, "big")
    return "127." + ".".join(map(str, low))


def follow(reader: Reader, block: Block) -> None:
    if block.language in FILES:
        reader.write(block.options["title"], block.text)
    for command in commands(block.text) if block.language == "console" else ():
        printed = reader.run(command.words, block.options.get("host", "left"))
        line = missing(command.printed, printed)
        assert line is None, f"{command.words}: no line {line!r} in its place among\n{printed}"
