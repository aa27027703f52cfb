"""Keeps an engine's role, its state and its place in the plan, and obeys the orders that change them."""
