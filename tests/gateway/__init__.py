"""Tests of the gateway: pure parts by property, the whole worker against a real broker and a real Kafka."""
