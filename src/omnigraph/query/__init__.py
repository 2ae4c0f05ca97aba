"""The query language `.gq`: parse, check, plan. Knows neither Lance nor Spark."""
