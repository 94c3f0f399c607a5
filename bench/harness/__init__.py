"""What all benches share: the machine, the tools that are compared, the programs they look at, the figures."""
