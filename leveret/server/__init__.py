"""The process: configuration, command line, listeners, transports and life cycle."""
