"""One TOML file per regulation: what `contracts.edr.profiles` loads. Data only."""
