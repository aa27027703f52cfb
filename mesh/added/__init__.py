"""Services that are added to a running mesh: their tables, and the file in which they are kept."""
