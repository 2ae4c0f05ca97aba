"""Values every room shares; this one imports only `errors` and knows no storage.

============== ====================================================================
`types`        what a property, a parameter or an expression can be
`values`       the one form of a value in the product, its conversions and spelling
`parameters`   query parameters, read against their declared types
`ids`          ULIDs, table keys, branch names, actor ids, the storage version
`json_object`  JSON, JSON schema and reading, from the fields of a class
`receipts`     what writes return; `upkeep` has the receipts of upkeep
`changes`      changes of entities; `diffs` and `merging` are made of them
`governor`     deadline, memory and cancellation of a running query
`arrow`        Arrow types, fields and table schemas; columns from JSON
`result`       what a read query returns; `tables`, the rows of one type
============== ====================================================================

Modules that need pyarrow are imported only where columns are handled; the others are light, so that
the languages and the command line start fast.
"""
