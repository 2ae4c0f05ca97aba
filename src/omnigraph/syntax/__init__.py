"""From text to syntax tree: source texts, tokens and the grammars of `.pg` and `.gq`.

This room knows no types and no graph: names are not resolved here. It turns positions back into
messages a person can use, and suggests the name that was meant.
"""
