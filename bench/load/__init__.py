"""A load generator for servers with the OpenAI API: ``mesh bench``. And a mock server to try it on."""
