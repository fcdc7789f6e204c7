"""Commands of the command line that ask a running broker, at its control socket."""
