"""Chats beyond text: calls of tools, reasoning, and the ways in which models write them. Pure."""
