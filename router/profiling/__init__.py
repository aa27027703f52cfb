"""``mesh profile``: what the servers of others cost, measured from outside, and what engines of ours do."""
