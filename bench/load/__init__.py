"""A load generator for servers with the OpenAI API: ``mesh bench``."""
