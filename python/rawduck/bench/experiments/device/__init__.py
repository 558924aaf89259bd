"""Those about a device and what is asked of it."""
