"""Reference pages that are made from the code: commands, HTTP paths, models, policies, metrics, messages and the feed.

``python -m docs.tools.reference FOLDER`` writes them; the site's build makes them anew each time.
"""

import sys
from pathlib import Path

from docs.tools import commands, feed, http_paths, messages, metrics, models, policies


def pages() -> dict[str, str]:
    """The Markdown of each generated page by its path in docs/."""
    return {
        "reference/cli.md": commands.page(),
        "reference/feed.md": feed.page(),
        "reference/http.md": http_paths.page(),
        "reference/metrics.md": metrics.page(),
        "reference/messages.md": messages.page(),
        "reference/models.md": models.page(),
        "reference/policies.md": policies.page(),
    }


def main(folder: Path) -> None:
    for path, text in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
