"""The accepted schema of a graph: reading it, changing it as one commit, and the apply lock."""
