"""The benchmark: `python -m bench`, or `make bench`.

A suite is a module with a `run` function that returns figures. `__main__` picks suites and prints,
`record` says what a figure is and where it was measured, `measure` takes the time, `texts` makes
the input. A new suite is entered in `suites`.
"""
