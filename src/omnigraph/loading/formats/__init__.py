"""The formats of tables: reading their rows, and mapping their columns to properties."""
