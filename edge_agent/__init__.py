"""The agent on the vehicle or machine: measures, keeps safe, sends, and forgets only what the cloud holds.

Comes in: readings from sources (a bus, a recording, a simulator) and, over MQTT, acknowledgements and commands.
Goes out: packets (``contracts.packet``) and a status heartbeat over MQTT 5 with mutual TLS.

A packet is *accepted* once the spool's transaction holding it is fsynced; only the gateway's end-to-end
acknowledgement frees it. The room imports ``contracts`` alone; read ``agent.py`` first.
"""

AGENT_VERSION = "0.1.0"
