"""What the scripts share: arguments, jobs in processes, tables, pictures and JSON files."""
