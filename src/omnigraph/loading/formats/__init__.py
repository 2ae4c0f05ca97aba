"""The formats of tables: how the rows of each are reached, and what their columns are."""
