"""Decides which services run where: searches for plans and replaces the present one (SeaLLM, 2025)."""
