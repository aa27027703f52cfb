"""Decides what an engine stores in KV tiers, and what it takes back."""
