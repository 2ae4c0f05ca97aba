"""Change requests: what is asked to be merged, who approved it, and merging it.

Events are appended to one dataset; state is computed from them and from the commits of the graph.
This room knows no HTTP, and nothing of who may do what: the gate of the graph decides that.
"""
