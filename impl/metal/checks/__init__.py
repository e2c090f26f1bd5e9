"""Checks of a kernel's text while it runs: memory, races, unwritten and uninitialized values, convergence."""
