"""One file per published claim. `make bench` runs them all on this machine."""
