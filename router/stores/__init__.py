"""Stores on disk that a gateway keeps: where they are, and the threads that work on them."""
