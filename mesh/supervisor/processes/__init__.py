"""The processes that a supervisor runs: started, adopted, watched, restarted."""
