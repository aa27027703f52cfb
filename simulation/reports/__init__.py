"""Reports simulations: summaries, tables, timelines, plots."""
