"""Runs batches: files of requests without promises, which are answered in what promises leave."""
