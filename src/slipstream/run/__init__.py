"""Run: an unmodified script with its fixes applied, each one checked."""
