"""Spark: sessions, frames and the data source; `omnigraph.loading` runs bulk loads on it.

Spark schedules and shuffles; rows stay in Arrow. Workers receive descriptions of work (file ranges,
fragments), read, convert, check and write, and return descriptions of the files they wrote. Only
keys pass through the JVM, for constraints on several rows. Rows become visible through the write
path of `commit`, like those of any other write.
"""
