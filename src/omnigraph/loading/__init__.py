"""One load: sources, conversion to typed rows, checks, executors and staging."""
