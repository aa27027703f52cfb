"""Anthropic's Messages API, as a translation above the gateway's chats."""
