"""Routing: exchange types and bindings, without IO."""
