"""The query language `.gq`: check, plan, lint. Imports neither Lance nor Spark."""
