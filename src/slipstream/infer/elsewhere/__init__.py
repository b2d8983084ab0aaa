"""Models in other runtimes: exported once, tried in a process of their own, and only then used."""
