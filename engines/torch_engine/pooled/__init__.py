"""Models that make one vector of each prompt, instead of tokens."""
