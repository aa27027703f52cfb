"""Shows what commands found beside their tables: pictures, pages, charts on a terminal, and progress."""
