"""The embedded engine: numpy over dense integers, Arrow columns, Lance underneath."""
