"""One script per published number. A figure carries its unit, target and conditions; nothing here asserts a time."""
