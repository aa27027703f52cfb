"""What a simulation reports: summaries, tables, timelines, plots."""
