"""The command line: arguments in, results on stdout, everything else on stderr.

A command reads its arguments, calls the library and shows what came back. There is no logic here
that a user of the library would miss. `main` runs a command line, `output` writes to the two
streams, `failures` turns errors into text and exit codes, `help` writes the help pages.
`addressing` finds out which graph is meant, from the flags in `options` and from `operator_config`;
`opening` opens it, prints the target of a write, and asks before a destructive one. Every other
module is one command or one group of commands, or a small thing they share.

Start-up time is felt on every call, so a command imports what it needs when it runs.
"""
