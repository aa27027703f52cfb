"""The pure modules that a simulation spends its time in, compiled by mypyc: the same runs, sooner. Optional."""
