"""Graph records: from the bytes of an input to typed rows and problems.

`framing` splits blocks into JSON values (`exact_json`), `envelope` sorts them by type, `rows`
converts them to columns. Decoding needs the schema and not the graph, so every machine decodes a
piece of a file to the same rows.
"""
