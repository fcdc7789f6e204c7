"""The rules of a broker: vhosts, sessions, users; without IO."""
