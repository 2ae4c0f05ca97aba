"""Embeds texts as vectors, with a provider over HTTP or with deterministic mock vectors.

`config` resolves the one configuration, from the environment or from a host; `client` sends
requests with retries and checks the vectors. The room knows nothing of graphs, plans or engines: a
caller brings a text, a dimension and, where the schema records one, the name of a model. httpx is
imported with the first request.
"""
