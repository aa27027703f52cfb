"""The backend ``transformers``: Hugging Face transformers computes static batches, with its own models and loop."""
