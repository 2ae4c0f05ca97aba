"""Graph records: from the bytes of an input to typed rows, and what can be wrong on the way.

`source` reads blocks, `framing` finds and decodes JSON values in them (`exact_json`), `envelope`
sorts them by type, `rows` makes columns of them. Nothing here knows the graph a record goes to,
only its schema: a file can be decoded in pieces, anywhere, with the same result.
"""
