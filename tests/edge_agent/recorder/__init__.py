"""The crash recorder."""
