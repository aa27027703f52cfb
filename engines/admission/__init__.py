"""Which requests an engine accepts, and from whom."""
