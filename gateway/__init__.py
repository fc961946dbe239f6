"""The door of the cloud: packets from devices in, records of the log out, acknowledgements and commands back.

In: MQTT 5 publishes on ``v1/{device}/up/#`` through a shared subscription; registrations and commands from
their Kafka topics. Out: one Kafka record per publish (the device's own bytes and one header), refused publishes
in the dead-letter topic with their reason, acknowledged ranges on ``v1/{device}/down/ack``, commands on
``v1/{device}/down/cmd``.

A publish is PUBACKed, and its sequence number confirmed to its device, only after Kafka has it (``acks=all``).
Nothing is kept on disk here: what a crash interrupts, the broker's session and the device's spool still hold.
Read ``relay.py`` first, then ``admission.py``.
"""
