"""Drafts tokens that may follow, and checks them: several tokens of an answer in one step."""
