"""The wire protocol, without IO: bytes in, calls and bytes out."""
