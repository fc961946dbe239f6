"""Every SQL statement of the room, as text, each beside the one function that runs it.

The only package with psycopg. Functions take a connection whose transaction is already bound to a tenant
(``pool.Store.transaction``) and give back plain rows; shapes and HTTP are not known here.
"""
