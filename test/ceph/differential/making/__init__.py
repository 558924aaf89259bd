"""Random tables, settings and queries."""
