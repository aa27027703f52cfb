"""A small HTTP client that measures each streamed answer."""
