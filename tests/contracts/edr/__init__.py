"""The crash record: profiles, bytes, verdicts."""
