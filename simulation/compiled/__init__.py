"""The modules that simulations and gateways spend their time in, compiled by mypyc: the same answers, sooner."""
