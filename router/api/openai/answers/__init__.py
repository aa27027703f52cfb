"""Answers of the OpenAI API: whole, as streams, with log-probabilities."""
