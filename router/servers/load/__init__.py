"""Counts what is on one server: what this gateway sent there, what the server says, and what its tokens tell."""
