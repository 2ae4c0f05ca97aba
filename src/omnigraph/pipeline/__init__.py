"""Spark: sessions, frames and the data source; `omnigraph.loading` runs bulk loads on it.

Spark is scheduler and shuffle engine; rows stay in Arrow. Workers receive descriptions of work
(file ranges, fragments), read, convert, check and write, and return descriptions of what they
wrote. Only keys cross the JVM, for checks of several records. Rows become visible through the write
path of `commit`, like any other write.
"""
