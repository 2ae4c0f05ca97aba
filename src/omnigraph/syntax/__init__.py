"""From text to syntax tree: source texts, tokens and the grammars of `.pg` and `.gq`.

Names are not resolved here: this package has no types and no graph. It turns positions into error
messages, and suggests the nearest name for a misspelt one.
"""
