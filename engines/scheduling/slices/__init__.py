"""Slice-level scheduling (SCLS): what a bounded number of iterations costs, and which requests share them where."""
