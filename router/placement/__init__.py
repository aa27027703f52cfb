"""Which services run where: the search for a plan, and when a new one replaces the present one (SeaLLM, 2025)."""
