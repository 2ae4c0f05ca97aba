"""Source texts, positions, tokens and spelling suggestions, shared by both languages.

This room knows nothing about schemas or queries: it turns text into tokens with positions and turns
positions back into messages a person can use.
"""
