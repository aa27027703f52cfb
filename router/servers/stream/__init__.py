"""Streams of events that servers send: read, rewritten, and gone on with elsewhere."""
