"""Learns from servers as they are used: what they cost, and which prefixes they keep."""
