"""Bulk data on Spark: sessions, sources, the load job and the Spark data source.

Spark is scheduler and shuffle engine; rows stay in Arrow. Workers receive descriptions of work
(file ranges, fragments), read, convert, check and write by themselves, and give back descriptions
of what they wrote. Only keys cross the JVM, for the checks that concern several records. What a
job wrote becomes visible through the write path of `commit`, like any other write.
"""
