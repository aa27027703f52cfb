"""The API of files and batches, as OpenAI has it."""
