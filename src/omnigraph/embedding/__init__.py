"""Texts to vectors: which provider, how it is asked, and what is accepted as an answer.

===========  ==========================================================================
`config`     the one resolved configuration, from the environment or from a host
`patience`   timeouts, deadline and retries
`providers`  the two shapes of requests and replies
`vectors`    what a provider's vector must be, and normalisation
`mock`       deterministic vectors without a provider
`client`     one call with its retries
`queries`    the embedder of an open graph, for texts in queries
===========  ==========================================================================

It knows nothing of graphs, plans or engines: a caller brings a text, a dimension and, where the
schema records one, the name of a model. httpx is imported with the first request.
"""
