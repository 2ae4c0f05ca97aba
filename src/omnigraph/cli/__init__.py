"""The command line: arguments in, results on stdout, everything else on stderr.

A command reads its arguments, calls the library and shows what came back. There is no logic here
that a user of the library would miss. `main` runs a command line, `output` writes to the two
streams, `failures` turns errors into text and exit codes, `help` writes the help pages.
`addressing` resolves the target graph from the flags in `options` and from `operator_config`;
`opening` opens it, prints the target of a write, and asks before a destructive one. Every other
module is one command, one group of commands, or a helper of several.

To keep start-up fast, a command imports its dependencies when it runs.
"""
