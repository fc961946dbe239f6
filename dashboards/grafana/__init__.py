"""Grafana boards as code. Comes in: the signal catalogue. Goes out: provisioning files, committed beside this code.

``python -m tests.house.generated --write`` renews the files; ``fleetstream grafana sync`` brings them to a server.
"""
