"""The house's own rules, held by tests: direction of imports, sizes, docs, packaging."""
