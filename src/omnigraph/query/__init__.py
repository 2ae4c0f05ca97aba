"""The query language `.gq`: check, plan, lint. Knows neither Lance nor Spark."""
