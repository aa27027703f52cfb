"""What `mkdocs build` asks of this project: generated pages, links to files outside of docs/, and Mermaid from here.

docs/assets/mermaid/ holds `@mermaid-js/tiny` 11.17.2 as npm serves it, so that a built site asks no other site for
anything. `npm pack @mermaid-js/tiny` fetches another version.
"""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

_MERMAID = "assets/mermaid/mermaid.tiny.js"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
_log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made from the code, and an entry for each decision to the navigation."""
    from docs.tools import reference  # its path is not there before this module is

    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    decisions = sorted(file.src_uri for file in files if file.src_uri.startswith("decisions/0"))
    config.nav[-1] = {"Decisions": ["decisions/index.md", "decisions/template.md", *decisions]}
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Files) -> str:
    """A link to a file that is no page of the site becomes the file's path; a path that does not exist is a warning."""

    def replace(match: re.Match[str]) -> str:
        label, target, _ = match.groups()
        path = Path(os.path.normpath(ROOT / "docs" / Path(page.file.src_uri).parent / target))
        if path.is_relative_to(ROOT / "docs") and not path.is_dir():
            return match.group(0)
        relative = path.relative_to(ROOT).as_posix()
        if not path.exists():
            _log.warning("%s links to %s, which does not exist", page.file.src_uri, relative)
        return f"{label} (`{relative}`)" if label.strip("`") != relative else f"`{relative}`"

    return _LINK.sub(replace, text)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Loads Mermaid on pages with diagrams. The theme fetches its own copy from another site where there is none."""
    if 'class="mermaid"' not in output:
        return output
    script = get_relative_url(_MERMAID, page.url)
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)
