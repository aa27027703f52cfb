"""KV tiers: blocks that outlive an engine's pool, as files that are named by their content."""
