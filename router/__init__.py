"""Gateways: the OpenAI API, the monitor and the dispatch policies."""
