"""Reads the feeds of gateways."""
