"""Values every room shares; this one imports only `errors` and knows no storage.

=============  =====================================================================
`types`        what a property, a parameter or an expression can be; reserved column names
`values`       the one form of a value in the product, what becomes one, its canonical text
`parameters`   the JSON of query parameters, and its JSON schema
`temporal`     dates and date-times: texts, epoch numbers, `datetime`
`ids`          ULIDs, table keys, branch names, actor ids, the storage version
`receipts`     what writers return
`versions`     versions of what graphs write down
`conflicts`    what a merge cannot decide
`explanation`  a plan and how it ran
`text_table`   tables for terminals and notebooks
`arrow`        Arrow types, fields and table schemas
`columns`      values and spellings by the column
`result_json`  query results as JSON rows
`result`       what a read query returns
=============  =====================================================================

The last four need pyarrow and are imported only where columns are handled; the others are light,
so that the languages and the command line start fast.
"""
