"""The LDBC Social Network Benchmark: a network of its shape, its reads and updates."""
