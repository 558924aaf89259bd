"""The subcommands of `rawduck`, one module per group; each registers itself with the application."""
