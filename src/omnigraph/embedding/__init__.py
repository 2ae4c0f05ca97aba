"""Embeds texts as vectors, with a provider over HTTP or with deterministic mock vectors.

`config` resolves the one configuration, from the environment or from a host; `client` sends
requests with retries and checks the vectors. This package does not depend on graphs, plans or
engines: a caller passes a text, a dimension and, if the schema records one, the name of a model.
httpx is imported with the first request.
"""
