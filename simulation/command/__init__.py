"""``mesh simulate``: arguments, runs and outputs."""
