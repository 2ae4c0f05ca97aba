"""Change requests: opening, reviewing and merging them.

Events are appended to one dataset; state is computed from them and from the commits of the graph.
This room does not depend on HTTP, and makes no access decisions, which the gate of the graph makes.
"""
