"""The Spark engine: the plans of `engines.local` on DataFrames, with the same answers."""
