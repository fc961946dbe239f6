"""Tests of the agent on the device."""
