"""Harm done to real meshes beside honest clients: processes and messages that fail (`chaos`), and attacks (`siege`)."""
