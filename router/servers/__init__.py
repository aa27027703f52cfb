"""Servers of others behind the gateway: what answers the OpenAI API is an engine (docs/guides/front.md)."""
