"""Chats: what their prompts are made of, and how their answers are read."""
