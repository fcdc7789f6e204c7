"""Bytes on disk: the segment log, its indexes, its state log, and the definitions database."""
