"""Cars and turbines that lie convincingly, mischief, load, and recordings replayed.

Comes in: a seed, a plan of devices with their certificates, or recorded drives. Goes out: readings through the real
agent (``fleet``, ``replay``), or packets on MQTT and Kafka through the contracts alone (``load``, ``kafka_load``).
A machine is one coherent piece of physics, never one random walk per signal; the same seed gives the same life.
The room imports contracts and the agent's wiring; crash pulses have a folder of their own, ``crashes``.
"""
