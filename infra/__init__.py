"""The embedded stack, the command line, migrations and broker settings.

Comes in: settings, pinned coordinates and the machine it runs on. Goes out: running PostgreSQL, Kafka and
Mosquitto with the services on top of them, each its own process group, started in dependency order and
stopped in reverse; and the ``fleetstream`` command.

Everything is written below two folders: the runtime directory (``FLEETSTREAM_HOME``, default
``.fleetstream`` under the working directory) and the cache of downloads (``FLEETSTREAM_CACHE``, default the
user's cache folder). Run as root it also creates the system user ``pgserver``, because PostgreSQL refuses
root, and lets other users pass through the folders above the database.
"""
