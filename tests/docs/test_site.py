"""The site builds without a warning; commands and paths on pages exist; what is drawn is up to date."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from docs.tools import diagrams, metrics, reference
from mesh.cli.entry import command_parser
from tests.docs.pages import DOCS, ROOT, blocks

PAGES = (*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
_SHELL = ("", "console", "sh", "text")
_PATH = re.compile(r"`((?:mesh|kvtransfer|engines|router|simulation|bench|tests|deploy|docs)/[\w./-]+)`")
_MADE = {"build/figures"}  # by commands, and not in the repository
_MODULE = re.compile(r"python -m (bench[\w.]*|docs[\w.]*|router[\w.]*|engines[\w.]*)")


def test_the_site_builds_without_a_warning(tmp_path: Path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, re.findall("WARNING.*", done.stderr)) == (0, [])
    assert _fetched_from_elsewhere(tmp_path) == []


def test_paths_and_modules_that_a_page_names_exist():
    def missing(page: Path) -> list[str]:
        text = page.read_text()
        paths = [path for path in set(_PATH.findall(text)) - _MADE if not (ROOT / path.rstrip("./")).exists()]
        return paths + [module for module in _MODULE.findall(text) if find_spec(module.rstrip(".")) is None]

    assert _by_page(missing) == {}


def test_commands_that_a_page_shows_exist_with_their_options():
    options = {name: _options_of(parser) for name, parser in _commands().items()}

    def unknown(page: Path) -> list[str]:
        return [line for line in _command_lines(page.read_text()) if not _exists(line, options)]

    assert _by_page(unknown) == {}


def test_links_of_a_page_lead_somewhere():
    made = {str(DOCS / path) for path in reference.pages()}

    def dead(page: Path) -> list[str]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
        found = [(page.parent / target).resolve() for target in targets]
        return [str(path) for path in found if not path.exists() and str(path) not in made]

    assert _by_page(dead) == {}


def test_metrics_that_a_page_names_exist():
    """By the name in the code, or by the one of a scrape."""
    names = {metric.name for metric in metrics.found()}

    def unknown(page: Path) -> list[str]:
        named = set(re.findall(r"`((?:meshserve_|vllm:)[a-z_]+[a-z])`", page.read_text()))
        return [name for name in named if not names & {name, name.removesuffix("_total")}]

    assert _by_page(unknown) == {}


def test_state_diagrams_are_those_of_the_transition_tables():
    text = diagrams.PAGE.read_text()
    assert diagrams.drawn(text) == text, "python -m docs.tools.diagrams draws them anew"


def test_reference_pages_name_what_there_is():
    pages = reference.pages()
    assert [name for name in _commands() if f"## mesh {name}\n" not in pages["reference/cli.md"]] == []
    assert {"meshserve_slo_attained", "meshserve_engine_state"} <= {metric.name for metric in metrics.found()}
    assert all(f"### {name}\n" in pages["reference/messages.md"] for name in ("Submit", "Reserve", "EngineStatus"))
    assert "`/v1/chat/completions`" in pages["reference/http.md"]


def _by_page(faults_of: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """The faults of pages that have some."""
    return {str(page.relative_to(ROOT)): faults for page in PAGES if (faults := faults_of(page))}


def _exists(line: str, options: Mapping[str, set[str]]) -> bool:
    """Whether the command of a line exists, with the options that the line gives it."""
    _, name, *words = shlex.split(line, comments=True)
    return name.startswith("-") or (name in options and set(_options_in(words)) <= options[name])


def _fetched_from_elsewhere(site: Path) -> list[str]:
    """Pages that need another site to be shown. The theme would fetch Mermaid where a page with diagrams has none."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    outside = re.compile(r'<(?:script|img|link rel="(?:stylesheet|preconnect)")[^>]*(?:src|href)="https?:')
    lacking = [page for page, text in pages.items() if 'class="mermaid"' in text and "mermaid.tiny.js" not in text]
    return [page.name for page, text in pages.items() if outside.search(text) or page in lacking]


def _commands() -> dict[str, argparse.ArgumentParser]:
    [commands] = [one for one in command_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(commands.choices)


def _options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Those of its subcommands included."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(*(_options_of(choice) for choice in action.choices.values()))
    return found


def _options_in(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def _command_lines(text: str) -> list[str]:
    """Lines of shell blocks, and of indented ones, that call ``mesh``."""
    bodies = [block.text for block in blocks(text) if block.language in _SHELL]
    bodies.append("\n".join(line[4:] for line in text.splitlines() if line.startswith("    ")))
    joined = "\n".join(bodies).replace("\\\n", " ")
    return [
        line.removeprefix("$ ").strip() for line in joined.splitlines() if re.match(r"(\$ )?mesh [a-z]", line.strip())
    ]
