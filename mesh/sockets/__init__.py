"""Sockets of a process: inboxes, broadcasts, subscriptions, encryption between hosts."""
