"""Published benchmarks: their scoring rules and the methods that are scored with them; pure."""
