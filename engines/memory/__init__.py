"""KV memory and weights: block pools, pages, and which services live on an engine."""
