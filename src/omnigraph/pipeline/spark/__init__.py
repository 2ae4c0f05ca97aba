"""Spark itself: finding Java, starting a session, and keeping its start short."""
