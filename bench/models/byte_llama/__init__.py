"""A byte-level Llama of a million parameters: the text it learns from, its network, yardsticks, and its model card."""
