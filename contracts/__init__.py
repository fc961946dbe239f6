"""What two rooms must agree on: names, numbers, bytes, tables, errors.

Comes in: nothing. Goes out: pure data types and functions that every other room may import.
The room imports the standard library and the wire codec (fastavro) only (``edr.x509``, which nothing here
imports, also needs ``cryptography``), does no I/O beyond reading its own data files, and never reads a clock.

How an agreement changes: a catalogue number, an Avro field or a topic that was published once is never
re-used for something else. A new packet layout gets a new writer schema beside the old ones
(``packet_v1.avsc``), a golden file under ``tests/golden`` and stays decodable for ever.
"""
