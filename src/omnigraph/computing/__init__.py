"""Graph computations: algorithms in rounds over blocks of nodes, in this process or on Spark.

`algorithms` defines each algorithm once, over a `Block`: some nodes and the edges that lead to
them. `in_process` runs it over one block with all nodes, `pipeline.computing` over many on Spark.
"""
