"""Decides who is alive, by heartbeats, leases and incarnation numbers."""
