"""Simulated crashes and their truth."""
