"""What the scripts share: arguments, jobs in processes, tables and JSON files."""
