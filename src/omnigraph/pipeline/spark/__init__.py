"""Spark itself: finding Java, starting a session, and ending it."""
