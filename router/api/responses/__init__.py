"""OpenAI's Responses API, as a translation above the gateway's chats."""
