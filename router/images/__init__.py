"""Images in requests: where they come from, the process that decodes them, and their places in prompts."""
