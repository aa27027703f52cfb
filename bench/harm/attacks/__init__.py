"""What is tried against a mesh: rows of ``attacks.toml``, and what takes a program (`files`, `wire`)."""
