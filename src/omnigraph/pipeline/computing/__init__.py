"""Graph computations on Spark: `partitions` cuts a graph into blocks, `rounds` runs algorithms."""
