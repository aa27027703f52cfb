"""The five papers' own settings, with every policy on each of them."""
