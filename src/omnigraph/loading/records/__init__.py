"""Graph records: from the bytes of an input to typed rows and problems.

`framing` splits blocks into JSON values (`exact_json`), `envelope` sorts them by type, `rows`
converts them to columns. Only the schema is needed, not the graph: pieces of a file can be decoded
on any machine with the same result.
"""
