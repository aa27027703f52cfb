"""Who is alive: heartbeats, leases and incarnation numbers."""
