"""What the load generator asks: prompts, chats, their lengths, and the times at which they are due."""
