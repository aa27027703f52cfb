"""Commands that change a running mesh: its engines, their roles and services, and where requests run."""
