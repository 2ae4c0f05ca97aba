"""Graph algorithms, computed in rounds over blocks of nodes, in this process or on Spark.

`algorithms` defines each algorithm once, over a `Block`: some nodes with their incoming edges.
`in_process` runs it over one block with all nodes, `pipeline.computing` over many on Spark.
"""
