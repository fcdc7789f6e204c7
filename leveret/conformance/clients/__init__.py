"""Programs that use client libraries as their users do, each in a process of its own."""
