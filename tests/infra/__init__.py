"""Tests of the embedded stack and the command line."""
