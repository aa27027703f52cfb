"""What came of a run: outcomes, figures, a result file and a page."""
