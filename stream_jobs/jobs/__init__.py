"""The running things: the ingest query, the closer of windows, the archive."""
