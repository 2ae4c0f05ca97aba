"""Attacks on a real server: `make attack`."""
