"""The search for a placement plan: greedy, local search, scores."""
