"""How fast KV blocks move, and what hand-overs and migrations cost requests."""
