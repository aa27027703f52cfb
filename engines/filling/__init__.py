"""Fills steps of an engine with requests that were promised nothing, in the slack that promises leave."""
